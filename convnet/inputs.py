"""From a config to what the network is fed: mean and standard deviation, and what training draws for each image."""

import os
from dataclasses import replace

import numpy as np

from convnet.checkpoint import Checkpoint
from convnet.config import Config, ConfigError
from convnet.data import DataError
from convnet.data.augment import Augment
from convnet.data.fill import PLAIN, Form
from convnet.data.options import Split
from convnet.data.policy import Policy
from convnet.data.statistics import Statistics
from convnet.graph.feed import Feed
from convnet.graph.net import Network


def normalisation(
    config: Config, network: Network, found: Checkpoint | None = None, *, planned: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Mean, [1], [C] or an image [C, H, W], and standard deviation, [1] or [C], of pixels 0..255.

    found: a checkpoint, whose own values take the place of the statistics file's. planned: any numbers will do.
    """
    mean, std, shape = config.data.mean, config.data.std, network.data[0].shape
    if not of_statistics(config):
        return np.array(mean), np.array(std)
    if planned:
        image = (shape.channels, shape.height, shape.width)
        return np.full(image if mean == "image" else shape.channels, 127.5), np.full(shape.channels, 127.5)
    if found and found.inputs:
        given = found.inputs["mean"], found.inputs["std"]
    else:
        statistics = read_statistics(config, network)
        whole = mean == "image"
        given = _centre(config, statistics, network) if whole else statistics.mean, statistics.std
    first, second = (
        of_file if isinstance(value, str) else np.array(value)
        for value, of_file in zip((mean, std), given, strict=True)
    )
    return first, second


def of_statistics(config: Config) -> bool:
    """Whether the mean or the standard deviation is that of a file."""
    return isinstance(config.data.mean, str) or isinstance(config.data.std, str)


def read_statistics(config: Config, network: Network) -> Statistics:
    """The file that data.statistics names; a DataError tells the place of the option."""
    path = os.path.expanduser(config.data.statistics or "")
    try:
        return Statistics.load(path, network.data[0].shape.channels)
    except DataError as error:
        told = str(error)
        if not os.path.isabs(path) and not os.path.exists(path):
            told += f"; '{path}' is relative to {os.getcwd()}"
        raise DataError(str(config.locate(ConfigError(told, ("data", "statistics"))))) from None


def _centre(config: Config, statistics: Statistics, network: Network) -> np.ndarray:
    shape = network.data[0].shape
    try:
        return statistics.centre(shape.height, shape.width)
    except DataError as error:
        told = f"{error} in '{config.data.statistics}'; `convnet check-data CFG` makes another"
        raise DataError(str(config.locate(ConfigError(told, ("data", "mean"))))) from None


def augmentation(config: Config, network: Network) -> Augment:
    """What training draws for each image beside its crop."""
    split, shape = config.data.train, network.data[0].shape
    augment = _without_noise(split, (shape.channels, shape.height, shape.width))
    if augment.mixes and config.train.accumulate > 1 and config.train.batch_size // config.train.accumulate % 2:
        message = "mixup and cutmix mix two and two: expected an even batch_size / accumulate, found an odd one"
        raise config.locate(ConfigError(message, ("train", "accumulate")))
    if split.color_noise is None or not split.color_noise.strength:
        return augment
    components = tuple(map(tuple, read_statistics(config, network).components.tolist()))
    return replace(augment, noise=split.color_noise.strength, rescale=split.color_noise.rescale, pca=components)


def _without_noise(split: Split, shape: tuple[int, int, int]) -> Augment:
    erasing = split.random_erasing.erasing() if split.random_erasing else None
    return Augment(shape, jitter=split.color_jitter.jitter(), erasing=erasing, mixup=split.mixup, cutmix=split.cutmix)


def policy(split: Split) -> Policy | None:
    """The operations on cut images."""
    chosen = split.auto_augment
    return Policy(chosen.policy, chosen.operations, chosen.magnitude) if chosen else None


def feeds(
    config: Config, network: Network, forms: tuple[Form, Form] = (PLAIN, PLAIN), *, learns: bool = True
) -> tuple[Feed, Feed]:
    """What batches of training and of evaluation bring. forms: of their samples."""
    split, shape = config.data.train, network.data[0].shape
    augment = _without_noise(split, (shape.channels, shape.height, shape.width))
    noisy = split.color_noise is not None and split.color_noise.strength > 0
    names = replace(augment, noise=float(noisy)).names if learns else ()
    first, second = forms
    return Feed(first.uncut, names, first.cell), Feed(second.uncut)
