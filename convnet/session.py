"""From a config to what a command works with: network, images, engine; every mismatch is found here, before a step."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from convnet import checkpoint, inputs
from convnet.checkpoint import Checkpoint
from convnet.config import Config, ConfigError, load_config
from convnet.cpus import available_cpus
from convnet.data import DataError, Pipeline, Source, Transform
from convnet.data.decoders import chosen
from convnet.data.fill import PLAIN, Form, choose_form
from convnet.data.options import Split
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

    learns: False for evaluation alone, which needs no gradients. options: of `engine_maker`.
    """
    communicator = communicator or Solo()
    make = engine_maker(config, network, learns=learns, planned=backend.name == "planner", **options)
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


def engine_maker(
    config: Config,
    network: Network,
    *,
    learns: bool = True,
    found: Checkpoint | None = None,
    forms: tuple[Form, Form] = (PLAIN, PLAIN),
    planned: bool = False,
    **options: Any,
) -> choose.MakeEngine:
    """A function that makes an engine, with a backend, a communicator and a division.

    found: a checkpoint that will be loaded. forms: of the samples of training and evaluation. planned: the images, if
    any, will have no content, so that any mean of them will do.
    """
    shared, (mean, std) = config.parallel, inputs.normalisation(config, network, found, planned=planned)

    def make(backend: Any, communicator: Communicator, division: Division | None) -> Engine:
        return Engine(
            network,
            backend,
            batch_size=config.train.batch_size,
            accumulate=config.train.accumulate,
            trainable=trainable(network, config.solver) if learns else (),
            rule=make_rule(config) if learns else None,
            mean=mean,
            std=std,
            kept=inputs.of_statistics(config),
            feeds=inputs.feeds(config, network, forms, learns=learns),
            seed=config.seed,
            communicator=communicator,
            exchange=Exchange(shared.update, shared.wire, shared.bucket),
            division=division,
            **options,
        )

    return make


def timed_maker(config: Config, network: Network, backend: Any) -> choose.MakeEngine:
    """As `engine_maker`, of engines to be planned or timed: images in the config's form, which need not be there."""
    return engine_maker(config, network, forms=make_forms(config, network, backend), planned=True)


def make_input(engine: Engine, count: int) -> Any:
    """Run training up to the network's input, of so many samples that it was fed: [C, H, W, n] on the device."""
    executor, name = engine.executor("loss", count), engine.network.data[0].name
    return next(
        executor.array(step.arguments["y"])
        for step in executor.run_stepwise()
        if step.layer == name and "y" in step.arguments
    )


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


def make_source(config: Config, key: str, classes: Sequence[str] | None = None, *, least: int = 2) -> Source:
    """The images of data.<key>; a DataError tells the place of the option in the file.

    classes: in index order, of the training images or of a checkpoint; None: the split's own, `least` or more.
    """
    split: Split = getattr(config.data, key)
    try:
        source = split.source(classes)
        if classes is None and len(source.classes) < least:
            where = f" in '{os.path.expanduser(split.path)}'" if hasattr(split, "path") else ""
            raise DataError(f"expected two classes or more, found '{source.classes[0]}' alone{where}")
        return source
    except DataError as error:
        told = str(error)
        option, given = _named_in(split, told)
        if given and not os.path.isabs(given) and not os.path.exists(given):
            told += f"; '{given}' is relative to {os.getcwd()}"
        raise DataError(str(config.locate(ConfigError(told, ("data", key, option))))) from None


def _named_in(split: Split, told: str) -> tuple[str, str]:
    """The option of which a message speaks, and its value: the path of something, or else the kind of source."""
    for option in ("class_list", "root", "path"):
        given = getattr(split, option, None)
        if given and os.path.expanduser(given) in told:
            return option, os.path.expanduser(given)
    return "type", ""


def make_forms(
    config: Config, network: Network, backend: Any, train: Source | None = None, val: Source | None = None
) -> tuple[Form, Form]:
    """What samples of training and validation come as: with the work left that a GPU, if there is one, does faster.

    train, val: None where the images need not be there; they are not taken to come uncut then.
    """
    transform = replace(make_transform(config, config.data.train, network), policy=inputs.policy(config.data.train))
    of_train = choose_form(train, transform, cells=getattr(backend, "arch", None) is not None)
    if val is None:
        return of_train, PLAIN
    return of_train, choose_form(val, make_transform(config, config.data.val, network), cells=False)


def make_pipeline(
    config: Config,
    network: Network,
    split: Any,
    source: Source,
    backend: Any,
    control: Control | None = None,
    **options: Any,
) -> Pipeline:
    """Batches of a source, treated as `split` says, and of them the share of this rank; options: of Pipeline, before
    those of the config."""
    control = control or Control()
    options = {"on_error": split.on_error, "cache": config.data.cache, **options}
    if control.size > 1 and options["on_error"] == "error":
        options["on_error"] = "defer"  # the others wait for this rank in the middle of a step
    micro = config.train.batch_size // config.train.accumulate
    size = config.train.batch_size if options.get("train") else micro
    transform = make_transform(config, split, network)
    if options.get("train"):
        transform = replace(transform, policy=inputs.policy(split))
        options["augment"] = inputs.augmentation(config, network)
    threads = config.data.threads if isinstance(config.data.threads, int) else None
    options |= {"threads": threads, "cpus": _cpus(control), "workers": config.data.workers}
    options |= {"rank": control.rank, "world": control.size, "allocate": backend.host, "pin": backend.pin}
    return Pipeline(source, transform, size, seed=config.seed, **options)


def _cpus(control: Control) -> int:
    """Processors for each rank of this machine, unless the launcher has divided them, as those of MPI and Slurm do."""
    found, world = available_cpus(), control.world
    bound = found < (os.cpu_count() or 1) and world.launcher not in ("convnet", "torchrun")
    return found if bound else max(1, found // world.local_size)


def make_transform(config: Config, split: Any, network: Network) -> Transform:
    """What is done to an image before the network sees it."""
    shape = network.data[0].shape
    given = split.resize is not None or split.crop == "resized"  # which needs no particular size to cut from
    resize = split.resize if given else max(shape.height, shape.width)
    least = min(shape.height, shape.width) - 2 * split.pad
    if isinstance(resize, int) and split.crop != "resized" and resize < least:
        told = f"expected at least {least}, since {shape.height}x{shape.width} are cut out, found {resize}"
        raise config.locate(ConfigError(told, ("data", "train" if split is config.data.train else "val", "resize")))
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
        decoder=make_decoder(config),
    )


def make_decoder(config: Config) -> str:
    """The decoder by name."""
    try:
        return chosen(config.data.decoder)
    except DataError as error:
        raise config.locate(ConfigError(str(error), ("data", "decoder"))) from None


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
    engine = make_engine(config, network, backend, communicator, learns=False, found=found)
    load_weights(engine, found if config.solver.ema else replace(found, ema={}), momentum=False)
    return config, engine


def load_weights(engine: Engine, found: Checkpoint, *, momentum: bool) -> None:
    """Put a checkpoint into an engine; CheckpointError lists every tensor that does not fit.

    momentum: all that training goes on with; else averages, where there are some, take the place of the weights.
    """
    everything = engine.network.shapes
    params = {name: everything[name] for name in engine.network.params}
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
    engine.load(found.weights, found.momentum, {"ema": averages, "gradients": gradients, "inputs": found.inputs})
