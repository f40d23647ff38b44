"""`convnet check-data`: would training go through all images, are the sets fair, and what colours do they have?"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from convnet import session
from convnet.config import Config
from convnet.console import Console
from convnet.data import Source, Transform
from convnet.data.inspect import Found, digest_keys, inspect
from convnet.data.options import Split
from convnet.data.sources.base import some
from convnet.errors import UserError
from convnet.formats.files import check_place, writing
from convnet.graph.net import Network
from convnet.train.start import check_length, where_from

STATISTICS = "statistics.npz"


def check_data(config: Config, console: Console, *, output: str | None = None, workers: int = 0) -> int:
    """Report on both sets and write the statistics of the training set; 1 where training would fail.

    output: file of the statistics; None: data.statistics, or one beside the training images.
    Raises DataError and ConfigError for what stops training before its first step.
    """
    network = session.make_network(config)
    sources, found = _sources(config, network), {}
    path = Path(os.path.expanduser(output or config.data.statistics or _beside(config.data.train)))
    if not os.access(path.parent, os.W_OK):  # said before the work, which may take hours
        raise UserError(f"{path}: cannot write to '{path.parent}'; --output names another file")
    check_place(path)
    for key, source in sources.items():
        found[key] = inspect(source, _whole(config, network, key), console.bar, workers)
        console.say(f"data.{key}: {_described(source)}, {where_from(getattr(config.data, key))}")
        for line in [*_told(found[key]), *_copies(source, found[key])]:
            console.say(f"  {line}")
    if "val" in found:
        for line in _overlap(sources, found):
            console.say(line)
    sums = found["train"].sums
    if sums is not None:
        statistics = sums.statistics()
        with writing(path) as partial:
            statistics.save(partial)
        console.say(f"statistics: {path}, of {sums.images} images of {_size(sums.total)}: {_colours(statistics)}")
    faults = [line for key in found for line in _faults(key, getattr(config.data, key), sources[key], found[key])]
    for line in faults:
        console.say(f"training would fail: {line}")
    return int(bool(faults))


def _sources(config: Config, network: Network) -> dict[str, Source]:
    """Both, by name, as training makes and checks them."""
    sources = {"train": session.make_source(config, "train", least=2 if network.classifier else 1)}
    session.check_classes(config, network, sources["train"].classes, where_from(config.data.train))
    check_length(config, len(sources["train"]))
    if config.data.val:
        sources["val"] = session.make_source(config, "val", sources["train"].classes)
    return sources


def _whole(config: Config, network: Network, key: str) -> Transform:
    """What evaluation would see of an image before a smaller part is cut out: all up to its shorter side."""
    split = getattr(config.data, key)
    transform = session.make_transform(config, split, network)
    if transform.crop == "resized" and transform.resize is None and config.data.val:
        transform = replace(transform, resize=session.make_transform(config, config.data.val, network).resize)
    side = transform.resize or 0
    height, width = max(transform.height, side), max(transform.width, side)
    return replace(transform, height=height, width=width, pad=0, crop="center", mirror=False, policy=None)


def _described(source: Source) -> str:
    counts = np.bincount(source.labels[source.labels >= 0], minlength=len(source.classes))
    text = f"{len(source)} images"
    if not len(counts):
        return text
    least, most = int(counts.min()), int(counts.max())
    text += f" of {len(counts)} classes, {least if least == most else f'{least} to {most}'} of each"
    if most > 2 * least:
        fewest = [source.classes[i] for i in np.argsort(counts, kind="stable")]
        text += f" (median {int(np.median(counts))}; fewest: {some(fewest, 3)})"
    return text


def _told(found: Found) -> list[str]:
    lines = [f"broken: {error.path}: {error.reason}" for error in found.broken]
    for kind, paths in sorted(found.odd.items()):
        lines.append(f"{len(paths)} {kind}: {some(paths, 3)}")
    return lines


def _copies(source: Source, found: Found) -> list[str]:
    """Images that come more than once; those of different classes cannot be learnt."""
    keys = digest_keys(found.digests)
    known = np.flatnonzero(found.digests.any(1))
    _, first, group = np.unique(keys[known], return_index=True, return_inverse=True)
    original = known[first][group.reshape(-1)]
    copies = original != known
    differ = source.labels[original] != source.labels[known]
    lines = []
    if same := int((copies & ~differ).sum()):
        pairs = _pairs(source, original, known, copies & ~differ)
        lines.append(f"{same} copies of another image of the same class: {pairs}")
    if other := int((copies & differ).sum()):
        pairs = _pairs(source, original, known, copies & differ)
        lines.append(f"{other} copies of an image of another class: {pairs}")
    return lines


def _pairs(source: Source, original: np.ndarray, copy: np.ndarray, chosen: np.ndarray) -> str:
    pairs = list(zip(original[chosen].tolist(), copy[chosen].tolist(), strict=True))
    return some([f"{source.where(b)} = {source.where(a)}" for a, b in pairs], 3)


def _overlap(sources: dict[str, Source], found: dict[str, Found]) -> list[str]:
    train, val = (digest_keys(found[key].digests) for key in ("train", "val"))
    shared = np.isin(val, train) & found["val"].digests.any(1)
    if not shared.any():
        return ["no image of data.val is in data.train"]
    names = [sources["val"].where(index) for index in np.flatnonzero(shared).tolist()]
    return [f"{len(names)} of {len(val)} images of data.val are in data.train as well: {some(names, 3)}"]


def _beside(split: Split) -> str:
    """The statistics file of a set that has no name for it."""
    path = os.path.expanduser(getattr(split, "path", ""))
    return os.path.join(path if os.path.isdir(path) else os.path.dirname(path), STATISTICS)


def _faults(key: str, split: Split, source: Source, found: Found) -> list[str]:
    broken = len(found.broken)
    if broken == len(source):
        return [f"none of the images of data.{key} can be read"]
    if broken and split.on_error == "error":
        return [f"data.{key} has {broken} broken images; data.{key}.on_error: skip leaves them out"]
    return []


def _size(total: np.ndarray) -> str:
    return f"{total.shape[0]}x{total.shape[1]}"


def _colours(statistics: Any) -> str:
    def numbers(values: Sequence[float]) -> str:
        return ", ".join(f"{value:.2f}" for value in values)

    return f"mean {numbers(statistics.mean)}; std {numbers(statistics.std)}"
