"""`convnet plot samples`: training images as the network gets them, under their labels.

Needs matplotlib (the extra `plot`).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from convnet import inputs, session
from convnet.config import Config
from convnet.console import Console
from convnet.show import new_figure, save

COLUMNS = 8


def plot_samples(config: Config, target: Path, backend: Any, console: Console, *, count: int, epoch: int = 0) -> None:
    """Draw the first `count` samples of an epoch: read, augmented and normalised as in training."""
    figure = new_figure(target)
    config = replace(config, train=replace(config.train, batch_size=count, accumulate=1))
    network = session.make_network(config)
    source = session.make_source(config, "train", least=1)
    forms = session.make_forms(config, network, backend, source)
    engine = session.make_engine(config, network, backend, forms=forms)
    options: dict[str, Any] = {"train": True, "form": forms[0]}
    with session.make_pipeline(config, network, config.data.train, source, backend, **options) as pipeline:
        batch = next(pipeline.batches(epoch))
        y = data_layer(engine, batch)
        titles = [labelled(source.classes, batch, i) for i in range(len(batch))]
    mean, std = inputs.normalisation(config, network)
    figure.set_size_inches(1.6 * COLUMNS, 1.9 * -(-len(titles) // COLUMNS))
    _draw(figure, restored(y, mean, std), titles)
    save(figure, target)
    for error in pipeline.broken.values():
        console.warn(str(error))


def data_layer(engine: Any, batch: Any) -> np.ndarray:
    """What the data layer makes of a batch in training: [C, H, W, n]."""
    engine.feed(**batch.inputs, step=0, offset=0)
    return engine.backend.download(session.make_input(engine, len(batch)))


def restored(y: np.ndarray, mean: np.ndarray, std: np.ndarray) -> np.ndarray:
    """Images [n, H, W, 3] in 0..1 of normalised ones [C, H, W, n]; what lies beyond black or white is cut off."""
    mean, std = (values.reshape(-1, *(values.shape[1:] or (1, 1)), 1) for values in (mean, std))
    pixels = np.clip(y * std + mean, 0, 255).transpose(3, 1, 2, 0) / 255
    return np.repeat(pixels, 3, axis=3) if pixels.shape[3] == 1 else pixels


def labelled(classes: Sequence[str], batch: Any, i: int) -> str:
    """The class of a sample, or the two of a mixed one with their shares."""

    def name(label: int) -> str:
        return classes[label] if label >= 0 else "no label"

    first, share = name(int(batch.labels[i])), float(batch.extras["share"][i]) if "share" in batch.extras else 1.0
    return first if share == 1 else f"{first} {share:.0%}\n{name(int(batch.extras['second'][i]))} {1 - share:.0%}"


def _draw(figure: Any, images: np.ndarray, titles: Sequence[str]) -> None:
    grid = figure.subplots(-(-len(images) // COLUMNS), min(COLUMNS, len(images)), squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, title in zip(grid.flat, images, titles, strict=False):
        axes.imshow(image)
        axes.set_title(title, fontsize=8, parse_math=False)
