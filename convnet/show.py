"""A picture of a run: learning curve, filters of the first convolution, some predictions.

Needs matplotlib (the extra `plot`).
"""

import json
import logging
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from convnet.checkpoint import CONFIG, Checkpoint
from convnet.config import load_config
from convnet.data import DataError, EncodedSource, PixelSource, Source, decode
from convnet.errors import UserError
from convnet.formats.files import check_place, writing
from convnet.predict import Prediction, predict
from convnet.run import Run, find_checkpoint
from convnet.session import make_source

PICTURES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".pdf", ".svg", ".eps")  # what matplotlib writes on its own
FILTERS = 64  # most filters shown
SAMPLES = 24  # images shown with their predictions, evenly spaced over the validation set
COLUMNS = 8

Warn = Callable[[str], None]


def draw(run: Run, target: Path, backend: Any, warn: Warn) -> None:
    """Write the picture of a run with at least one checkpoint as a PNG."""
    found = find_checkpoint(run.path, warn)
    figure = new_figure(target)
    figure.set_size_inches(13, 12)
    figure.suptitle(str(run.path))
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.4))
    curve, filters = top.subfigures(1, 2, width_ratios=(1.4, 1))
    draw_curve(curve, read_metrics(run.metrics, warn))
    draw_filters(filters, found)
    draw_predictions(bottom, predictions(found, backend, warn))
    save(figure, target)


def read_metrics(path: Path, warn: Warn) -> list[dict[str, Any]]:
    """The rows of training and evaluation; a line that a killed run left unfinished is passed over."""
    rows = []
    for line in path.read_text("utf-8").splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            warn(f"{path}: a line that is not JSON is passed over")
    return [row for row in rows if row["event"] in ("train", "eval")]


def draw_curve(figure: Any, rows: Sequence[dict[str, Any]]) -> None:
    """Loss and top-1 error over epochs, of training and validation."""
    loss, error = figure.subplots(2, 1, sharex=True)
    for event, label, style in (("train", "training", "-"), ("eval", "validation", ".-")):
        part = [row for row in rows if row["event"] == event and row["loss"] is not None]
        epochs = [row["epoch"] for row in part]
        loss.plot(epochs, [row["loss"] for row in part], style, label=label)
        if part and "top1_accuracy" in part[0]:
            error.plot(epochs, [100 * (1 - row["top1_accuracy"]) for row in part], style, label=label)
    loss.set(ylabel="loss", yscale="log")
    error.set(ylabel="top-1 error, %", xlabel="epoch", ylim=(0, None))
    loss.legend()
    for axes in loss, error:
        axes.grid(alpha=0.3)


def draw_filters(figure: Any, found: Checkpoint) -> None:
    """The filters of the first convolution, each stretched to the full range."""
    axes = figure.subplots()
    axes.axis("off")
    name = next((name for name, array in found.weights.items() if array.ndim == 4), "")
    if name:
        tiles = filter_images(found.weights[name][:FILTERS])
        axes.imshow(mosaic(tiles, COLUMNS), interpolation="nearest")
        axes.set_title(f"{name}, {len(tiles)} of {len(found.weights[name])} filters")


def filter_images(weights: NDArray[Any]) -> NDArray[np.float64]:
    """Weights [F, C, R, S] as RGB images [F, R, S, 3] in 0..1; other than three channels are averaged to grey."""
    tiles = weights.transpose(0, 2, 3, 1).astype(np.float64)
    if tiles.shape[3] != 3:
        tiles = np.repeat(tiles.mean(axis=3, keepdims=True), 3, axis=3)
    low, high = (f(tiles, axis=(1, 2, 3), keepdims=True) for f in (np.min, np.max))
    return (tiles - low) / np.where(high > low, high - low, 1)


def mosaic(tiles: NDArray[Any], columns: int) -> NDArray[Any]:
    """Tiles [n, h, w, 3] row by row in one image, with a white line of one pixel between them."""
    count, height, width, _ = tiles.shape
    columns = min(columns, count)
    image = np.ones((-(-count // columns) * (height + 1) - 1, columns * (width + 1) - 1, 3))
    for i, tile in enumerate(tiles):
        top, left = i // columns * (height + 1), i % columns * (width + 1)
        image[top : top + height, left : left + width] = tile
    return image


Shown = tuple[str, Prediction, NDArray[np.uint8]]  # true class, prediction, pixels [H, W, 3]


def predictions(found: Checkpoint, backend: Any, warn: Warn) -> list[Shown]:
    """Some validation images; none without a validation set."""
    config = load_config(found.path / CONFIG)
    if config.data.val is None:
        return []
    try:
        source = make_source(config, "val", found.state["classes"])
        chosen = np.unique(np.linspace(0, len(source) - 1, SAMPLES).round().astype(int))
        part = source.take(chosen)
        places = {part.where(i): i for i in range(len(part))}
        made = [(places[p.path], p) for p in predict(found, backend, part, top=1, fault=warn)]
        return [(part.classes[part.labels[i]], prediction, picture(part, i)) for i, prediction in made]
    except (DataError, UserError) as error:
        warn(f"no predictions are shown: {error}")
        return []


def picture(source: Source, index: int) -> NDArray[np.uint8]:
    """An image of a source as RGB [H, W, 3]."""
    if isinstance(source, PixelSource):
        return np.repeat(source.images[index], 3 // source.images.shape[3], axis=2)
    assert isinstance(source, EncodedSource)
    return np.asarray(decode(source.read(index), source.where(index)))


def draw_predictions(figure: Any, shown: Sequence[Shown]) -> None:
    """Each image under its predicted and its true class; red where they differ."""
    if not shown:
        return
    figure.suptitle("predictions on validation images")
    grid = figure.subplots(-(-len(shown) // COLUMNS), COLUMNS, squeeze=False)
    for axes in grid.flat:
        axes.axis("off")
    for axes, (truth, prediction, pixels) in zip(grid.flat, shown, strict=False):
        (name, probability), *_ = prediction.top
        axes.imshow(pixels)
        color = "black" if name == truth else "red"
        title = f"{name}  {probability:.0%}\n(true: {truth})"
        axes.set_title(title, fontsize=9, color=color, parse_math=False)  # a name may have two dollar signs


def new_figure(target: Path) -> Any:
    """An empty figure of matplotlib; UserError where it is not installed, or cannot write such a file.

    That is said before the work is done whose result the figure is to show.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it warns of every folder that it cannot write to
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("the picture needs matplotlib: pip install matplotlib") from None
    figure = Figure(layout="constrained")
    if target.suffix.lower() not in PICTURES:
        raise UserError(f"{target}: expected a name that ends in one of {', '.join(PICTURES)}")
    check_place(target)
    return figure


def save(figure: Any, target: Path) -> None:
    """Write a figure; the file is complete or not there."""
    with writing(target) as partial, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # of names in a script that a font lacks
        figure.savefig(partial, dpi=100)
