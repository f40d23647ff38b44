"""What a resumed run takes from its checkpoint, and what from the config."""

from collections.abc import Callable, Sequence

import numpy as np

from convnet.checkpoint import CONFIG, Checkpoint
from convnet.config import Config, ConfigError, differences, load_config
from convnet.data import Pipeline
from convnet.data.cache import Cache
from convnet.data.decoders import chosen
from convnet.data.fill import Filler
from convnet.errors import UserError

# A new value of these would not continue the run, but begin another: the order of samples and the meaning of a step.
FIXED = (("seed",), ("precision",), ("train", "batch_size"), ("solver", "type"))


def joined(before: Sequence[str], now: Sequence[str]) -> list[str]:
    """The overrides of a run and those of the command that resumes it, which win.

    One of the same key is dropped, unless the new value is a mapping: that is merged into the old one.
    """
    replaced = {key for key, _, value in (override.partition("=") for override in now) if not value.startswith("{")}
    return [*(override for override in before if override.partition("=")[0] not in replaced), *now]


def check_resume(
    config: Config, found: Checkpoint, classes: Sequence[str], samples: int, warn: Callable[[str], None]
) -> None:
    """Raise where the run cannot be continued with `config`; warn of every option that has changed.

    classes, samples: of the training images as they are now.
    """
    if not found.momentum:
        raise UserError(
            f"{found.path}: has weights but no momentum, as an imported network; training cannot go on from there. "
            f"A new run starts from its weights with init: {{type: checkpoint, path: {found.path}, tensor: NAME}}"
        )
    old = load_config(found.path / CONFIG)
    for path in FIXED:
        before, now = _value(old, path), _value(config, path)
        if before != now:
            raise config.locate(ConfigError(f"cannot change in a run: it began with {before}, found {now}", path))
    if list(classes) != found.state["classes"]:
        before = found.state["classes"]
        raise UserError(f"{found.path}: its classes are {_few(before)}, those of the training images {_few(classes)}")
    if samples != found.state["samples"]:
        change = f"{found.state['samples']} training images when the checkpoint was written, {samples} now"
        if found.state["position"]:
            raise UserError(f"{found.path}: {change}; it is in the middle of an epoch, whose order cannot be continued")
        warn(f"{change}: epochs have another length from here on")
    before, now = found.state.get("decoder"), chosen(config.data.decoder)
    if before and before != now:
        warn(f"images were decoded by {before}, from here on by {now}")
    for line in differences(old, config):
        if not line.startswith(("run.", "name:")):
            warn(f"the config has changed, its new value is used: {line}")


def check_left_out(config: Config, found: Checkpoint, train: Pipeline, warn: Callable[[str], None]) -> None:
    """Raise DecodeError where an image that the run has stopped for still cannot be read."""
    names = found.state.get("left_out", [])
    if not names or config.data.train.on_error != "error":
        return
    filler = Filler(train.source, train.transform, Cache("off", len(train.source)))
    missing = set(names)
    indices = np.flatnonzero([train.source.where(index) in missing for index in range(len(train.source))])
    out = np.zeros((1, len(indices), *filler.shape), np.uint8)
    filler.fill(indices, train.transform.draw(0, 0, indices), out)
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    warn(f"the last steps before step {found.state['step']} lack '{names[0]}'{more}, which could not be read")


def _value(config: Config, path: tuple[str, ...]) -> object:
    value: object = config
    for key in path:
        value = getattr(value, key)
    return value


def _few(classes: Sequence[str]) -> str:
    return f"{', '.join(classes[:5])}{', ...' if len(classes) > 5 else ''} ({len(classes)})"
