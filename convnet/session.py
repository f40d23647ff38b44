"""From a config to what a command works with: network, images, engine; every mismatch is found here, before a step."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from convnet import checkpoint
from convnet.checkpoint import Checkpoint
from convnet.config import Config, ConfigError, load_config
from convnet.cpus import available_cpus
from convnet.data import DataError, FolderSource, Pipeline, Source, Transform
from convnet.device import Planner
from convnet.graph.engine import Engine
from convnet.graph.net import Network, Node
from convnet.graph.update import Rule
from convnet.parallel import choose
from convnet.parallel.communicator import Communicator, Solo
from convnet.parallel.control import Control
from convnet.parallel.data import Exchange
from convnet.parallel.division import Division
from convnet.train.rates import trainable
from layers.base import LABELS


def make_network(config: Config) -> Network:
    """The network; a ConfigError tells its place in the file."""
    try:
        return Network(config.layers)
    except ConfigError as error:
        raise config.locate(error) from None


def make_engine(
    config: Config,
    network: Network,
    backend: Any,
    communicator: Communicator | None = None,
    *,
    learns: bool = True,
    **options: Any,
) -> Engine:
    """An engine with untouched parameters, divided among ranks as the config says.

    learns: False for evaluation alone, which needs no gradients.
    """
    make, communicator = engine_maker(config, network, learns=learns, **options), communicator or Solo()
    try:
        found = divisions(config, network, communicator)
        planner = Planner(getattr(backend, "arch", None))
        chosen = choose.best(found, make, planner, backend, communicator) if learns else found[0]
        return make(backend, communicator, chosen.division)
    except ConfigError as error:  # of a layer that no gradient passes, or that cannot be divided
        raise config.locate(error) from None


def divisions(config: Config, network: Network, communicator: Communicator) -> list[choose.Choice]:
    """The ways in which the config allows a network to be divided among ranks."""
    shared = config.parallel
    how = divided(config, shared.fc, shared.scheme)
    return choose.choices(network, communicator.rank, communicator.size, *how)


def divided(config: Config, fc: str, scheme: str) -> tuple[str, str]:
    """The options fc and scheme, where auto is no choice that other options rule out."""
    whole = config.solver.clip_norm is not None or config.parallel.update == "sharded"
    return ("data", "A") if fc == "auto" and whole else (fc, scheme)


def engine_maker(config: Config, network: Network, *, learns: bool = True, **options: Any) -> choose.MakeEngine:
    """A function that makes an engine, with a backend, a communicator and a division."""
    shared = config.parallel

    def make(backend: Any, communicator: Communicator, division: Division | None) -> Engine:
        return Engine(
            network,
            backend,
            batch_size=config.train.batch_size,
            accumulate=config.train.accumulate,
            trainable=trainable(network, config.solver) if learns else (),
            rule=make_rule(config) if learns else None,
            mean=np.array(config.data.mean),
            std=np.array(config.data.std),
            seed=config.seed,
            communicator=communicator,
            exchange=Exchange(shared.update, shared.wire, shared.bucket),
            division=division,
            **options,
        )

    return make


def initialize(config: Config, engine: Engine) -> None:
    """Fill all parameters by their initializers; a ConfigError tells its place in the file."""
    try:
        engine.initialize()
    except ConfigError as error:
        raise config.locate(error) from error


def make_rule(config: Config) -> Rule:
    """How parameters move."""
    solver, ema = config.solver, config.solver.ema
    return Rule(solver.nesterov, solver.clip_norm, *((ema.decay, ema.warmup) if ema else ()))


def make_source(config: Config, key: str, classes: Sequence[str] | None = None, *, least: int = 2) -> FolderSource:
    """The images of data.<key>; a DataError tells the place of the option in the file.

    classes: in index order, of the training images or of a checkpoint; None: the split's own, `least` or more.
    """
    split: Any = getattr(config.data, key)
    path = os.path.expanduser(split.path)
    class_list = os.path.expanduser(split.class_list) if split.class_list and classes is None else None
    try:
        source = FolderSource(path, classes=classes, class_list=class_list, allow_empty=split.allow_empty)
        if classes is None and len(source.classes) < least:
            raise DataError(f"expected two classes or more, found '{source.classes[0]}' alone in '{path}'")
        return source
    except DataError as error:
        told = str(error)
        option, given = ("class_list", class_list) if class_list and class_list in told else ("path", path)
        if not os.path.isabs(given) and not os.path.exists(given):
            told += f"; '{given}' is relative to {os.getcwd()}"
        raise DataError(str(config.locate(ConfigError(told, ("data", key, option))))) from None


def make_pipeline(
    config: Config,
    network: Network,
    split: Any,
    source: Source,
    backend: Any,
    control: Control | None = None,
    **options: Any,
) -> Pipeline:
    """Batches of a source, treated as `split` says, and of them the share of this rank."""
    control = control or Control()
    options = {"on_error": split.on_error, "cache": config.data.cache, **options}
    micro = config.train.batch_size // config.train.accumulate
    size = config.train.batch_size if options.get("train") else micro
    transform = make_transform(config, split, network)
    return Pipeline(
        source,
        transform,
        size,
        seed=config.seed,
        threads=config.data.threads or _threads(control),
        allocate=backend.host,
        rank=control.rank,
        world=control.size,
        **options,
    )


def _threads(control: Control) -> int:
    """Processors for each rank of this machine, unless the launcher has divided them."""
    found = available_cpus()
    return max(1, found // control.world.local_size) if found == os.cpu_count() else found


def make_transform(config: Config, split: Any, network: Network) -> Transform:
    """What is done to an image before the network sees it."""
    shape = network.data[0].shape
    given = split.resize is not None or split.crop == "resized"  # which needs no particular size to cut from
    resize = split.resize if given else max(shape.height, shape.width)
    return Transform(
        shape.channels,
        shape.height,
        shape.width,
        resize=None if resize == "none" else resize,
        pad=split.pad,
        crop=split.crop,
        mirror=split.mirror,
        exif_orientation=config.data.exif_orientation,
        max_pixels=split.max_pixels,
    )


def check_classes(config: Config, network: Network, classes: Sequence[str], where: str) -> None:
    """Raise ConfigError unless every cost that reads labels has an output for each class of `where`.

    One output is enough for two classes.
    """
    for cost in network.costs:
        outputs = cost.in_shapes[0].features
        fits = outputs == len(classes) or (outputs == 1 and len(classes) <= 2)
        if LABELS in cost.inputs and not fits:
            expected = f"expected {len(classes)} outputs, one for each class of {where}, found {outputs}"
            raise config.locate(ConfigError(expected, *_origin(config, network, cost)))


def _origin(config: Config, network: Network, cost: Node) -> tuple[tuple[str, ...], str | None]:
    """Where the config says how many outputs there are for a cost: the section of a layer, and the option."""
    node = network[cost.inputs[0]]
    while "outputs" not in vars(node.layer) and "filters" not in vars(node.layer) and node.inputs:
        node = network[node.inputs[0]]
    (path,) = (spec.path for spec in config.layers if spec.name == node.name)
    return path, next((key for key in ("outputs", "filters") if key in vars(node.layer)), None)


def open_checkpoint(
    found: Checkpoint, backend: Any, overrides: Sequence[str] = (), communicator: Communicator | None = None
) -> tuple[Config, Engine]:
    """The config and the engine of a trained network, for evaluation."""
    config = load_config(found.path / checkpoint.CONFIG, overrides)
    network = make_network(config)
    check_classes(config, network, found.state["classes"], f"'{found.path}'")
    engine = make_engine(config, network, backend, communicator, learns=False)
    load_weights(engine, found if config.solver.ema else replace(found, ema={}), momentum=False)
    return config, engine


def load_weights(engine: Engine, found: Checkpoint, *, momentum: bool) -> None:
    """Put a checkpoint into an engine; CheckpointError lists every tensor that does not fit.

    momentum: all that training goes on with; else averages, where there are some, take the place of the weights.
    """
    network = engine.network
    params = {name: param.shape for name, param in network.params.items()}
    everything = params | {name: state.shape for name, state in network.states.items()}
    if not momentum:
        name = checkpoint.EMA if found.ema else checkpoint.WEIGHTS
        checkpoint.check_tensors(found.trained, everything, f"{found.path / name}")
        engine.load(found.trained)
        return
    checkpoint.check_tensors(found.weights, everything, f"{found.path / checkpoint.WEIGHTS}")
    checkpoint.check_tensors(found.momentum, params, f"{found.path / checkpoint.MOMENTUM}")
    averages = found.ema if engine.averages else {}
    if averages:
        checkpoint.check_tensors(averages, everything, f"{found.path / checkpoint.EMA}")
    gradients = {name: array for name, array in found.gradients.items() if name in engine.pending}
    engine.load(found.weights, found.momentum, {"ema": averages, "gradients": gradients})
