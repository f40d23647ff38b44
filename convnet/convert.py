"""`convnet convert`: a new run from a trained network, some layers of which become freer without computing otherwise.

A convolution becomes a local layer: its weights are repeated for each position, its biases for each output unit.
Weights shared with another layer are copied.  What changes has no momentum.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from convnet import checkpoint, session
from convnet.checkpoint import CONFIG, Arrays, Checkpoint
from convnet.config import Config, ConfigError, dump, load_config
from convnet.config.schema import Run as RunOptions
from convnet.errors import UserError
from convnet.graph.net import Network, Node
from convnet.run import Run, making, occupied
from layers.base import Layer
from layers.conv import Conv
from layers.local import Local
from layers.registry import nearest


def convert(found: Checkpoint, target: Path, *, local: Sequence[str] = (), unshare: Sequence[str] = ()) -> Run:
    """Write the run `target`, which must not exist; training can resume in it.

    local: names of convolution layers. unshare: names of layers that use the weights of another.
    """
    if occupied(target):
        raise UserError(f"{target}: exists already; expected the folder of a new run, named by -o")
    if not (local or unshare):
        raise UserError(f"{found.path}: nothing to convert; name layers with --local or --unshare")
    old = load_config(found.path / CONFIG)
    before = session.make_network(old)
    try:
        config = converted(old, before, local, unshare, target)
        after = session.make_network(config)
    except ConfigError as error:  # of layers that share weights
        raise UserError(f"{found.path}: {error}; --unshare gives a layer weights of its own") from None
    except UserError as error:
        raise UserError(f"{found.path}: {error}") from None
    changed = {name for name in after.params if name in before.shared or name.rpartition(".")[0] in local}
    extras = {"ema": convey(found.ema, before, after), "gradients": zeroed(found.gradients, before, after, changed)}
    state = {key: value for key, value in found.state.items() if key not in ("format", "files")}
    with making(target) as run:
        path = checkpoint.save(
            run.checkpoints,
            convey(found.weights, before, after),
            zeroed(found.momentum, before, after, changed),
            dump(config),
            state,
            {key: arrays for key, arrays in extras.items() if arrays},
        )
        if state.get("best", {}).get("step") == state["step"]:
            checkpoint.mark_best(run.checkpoints, path)
        run.keep(dump(config), ())  # which holds the overrides of the old run
    return run


def converted(old: Config, network: Network, local: Sequence[str], unshare: Sequence[str], target: Path) -> Config:
    """The config of the new network."""
    for name in local:
        _expect(network, name, lambda node: isinstance(node.layer, Conv), "a conv layer")
    for name in unshare:
        _expect(network, name, lambda node: bool(node.shared), "a layer with 'share'")
    layers: dict[str, Layer] = {name: node.layer for name, node in network.nodes.items()}
    for name in unshare:
        layers[name] = replace(layers[name], share=None)  # type: ignore[call-arg]
    for name in local:
        options = vars(layers[name])
        layers[name] = Local(**{field.name: options[field.name] for field in fields(Local)})
    specs = tuple(replace(spec, layer=layers[spec.name]) for spec in old.layers)
    return replace(old, layers=specs, run=RunOptions(dir=str(target)), marks={})


def convey(arrays: Arrays, before: Network, after: Network) -> Arrays:
    """Parameters and states in the shapes and under the names of the network `after`."""
    shapes = after.shapes
    sources = {name: before.shared.get(name, name) for name in shapes}
    return {name: spread(arrays[source], shapes[name]) for name, source in sources.items() if source in arrays}


def zeroed(arrays: Arrays, before: Network, after: Network, changed: Collection[str]) -> Arrays:
    """As `convey`, what has changed being 0."""
    moved = convey(arrays, before, after)
    return {name: np.zeros_like(array) if name in changed else array for name, array in moved.items()}


def spread(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A convolution's weights or biases repeated for each position of a local layer; others as they are.

    [F, C, R, S] to [P, Q, F, C, R, S], [F] to [F, P, Q].
    """
    if array.shape == shape:
        return array
    return np.array(np.broadcast_to(array if array.ndim == 4 else array[:, None, None], shape))


def _expect(network: Network, name: str, fits: Callable[[Node], bool], expected: str) -> None:
    if name not in network.nodes:
        raise UserError(f"there is no layer '{name}'{nearest(name, network.nodes)}")
    if not fits(network[name]):
        others = ", ".join(node.name for node in network.nodes.values() if fits(node)) or "none"
        found = f"found a {network[name].layer.type} layer; such are here: {others}"
        raise UserError(f"layer '{name}': expected {expected}, {found}")
