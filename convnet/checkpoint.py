"""Checkpoints: the state of a run in a folder that is whole or not there.

    RUN/checkpoints/step-00001200/
        weights.safetensors    parameters and running statistics under PyTorch's names; metadata: format "pt", classes
        momentum.safetensors   the last update of each parameter
        ema.safetensors        averages of what is in weights.safetensors; where the config has them
        gradients.safetensors  of parameters that wait for their update; where the config has such
        inputs.safetensors     mean and std of the images, where the config takes them from a file
        config.yaml            the resolved config
        state.json             counters, classes, states of the extensions; size and CRC of each file above

A checkpoint is written to a folder beside its final place, flushed to the disk and renamed, so that one with a final
name is complete; sizes and CRCs tell when the disk lost part of it afterwards.  Nothing is ever unpickled.
"""

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from convnet.errors import UserError, naming
from convnet.formats.files import flush, writing

FORMAT = 1
WEIGHTS, MOMENTUM, CONFIG, STATE = "weights.safetensors", "momentum.safetensors", "config.yaml", "state.json"
EMA, GRADIENTS, INPUTS = "ema.safetensors", "gradients.safetensors", "inputs.safetensors"
NAME = re.compile(r"step-(\d+)")
TEMPORARY = ".writing-"  # prefix of folders that are not complete...
REPLACED = "-replaced"  # ... apart from the one with this suffix: it gives way to a newer one of the same name
BEST = "best"  # file with the name of the best checkpoint

DTYPES = {"float32": "F32", "float64": "F64", "int64": "I64"}

Arrays = dict[str, np.ndarray]
Shapes = Mapping[str, tuple[int, ...]]


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or does not fit the network."""


@dataclass(frozen=True)
class Checkpoint:
    """A loaded checkpoint; `ema`, `gradients` and `inputs` are empty where there are none."""

    path: Path
    weights: Arrays
    momentum: Arrays
    state: dict[str, Any]
    ema: Arrays = field(default_factory=dict)
    gradients: Arrays = field(default_factory=dict)
    inputs: Arrays = field(default_factory=dict)

    @property
    def trained(self) -> Arrays:
        """Parameters and running statistics of the network that is evaluated: the averages, where there are some."""
        return self.ema or self.weights


def save(
    folder: Path,
    weights: Arrays,
    momentum: Arrays,
    config: str,
    state: Mapping[str, Any],
    extras: Mapping[str, Arrays] | None = None,
) -> Path:
    """Write step-<state["step"]> in `folder`; one of the same name is replaced once the new one is complete.

    extras: "ema", "gradients" and "inputs", where there are such arrays.
    """
    step = state["step"]
    final = place(folder, step)
    temporary = folder / f"{TEMPORARY}{final.name}"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    metadata = {"format": "pt", "step": str(step), "classes": json.dumps(state.get("classes", []))}
    write_tensors(temporary / WEIGHTS, weights, metadata)
    write_tensors(temporary / MOMENTUM, momentum, {"format": "pt"})
    for key, arrays in (extras or {}).items():
        write_tensors(temporary / f"{key}.safetensors", arrays, metadata if key == "ema" else {"format": "pt"})
    _write(temporary / CONFIG, config)
    names = (WEIGHTS, MOMENTUM, *(f"{key}.safetensors" for key in extras or {}), CONFIG)
    files = {name: _fingerprint(temporary / name) for name in names}
    _write(temporary / STATE, json.dumps({"format": FORMAT, **state, "files": files}, indent=1, allow_nan=False))
    for name in (*files, STATE, "."):
        flush(temporary / name)
    if final.exists():
        old = folder / f"{TEMPORARY}{final.name}{REPLACED}"
        shutil.rmtree(old, ignore_errors=True)
        final.rename(old)
        temporary.rename(final)
        shutil.rmtree(old)
    else:
        temporary.rename(final)
    flush(folder)
    return final


def place(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:08}"


def write_tensors(path: Path, tensors: Arrays, metadata: Mapping[str, str]) -> None:
    """A safetensors file: header size (u64), JSON header, data. Equal tensors give equal bytes.

    The package's own writer puts the metadata in another order each time.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.nbytes
        header[name] = {"dtype": DTYPES[tensor.dtype.name], "shape": tensor.shape, "data_offsets": (begin, end)}
        begin = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of 8
    with naming(path), path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).data)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint folder; raises CheckpointError, which names the file, where it is damaged."""
    try:
        state = json.loads((path / STATE).read_bytes())
        if state["format"] != FORMAT:
            raise CheckpointError(f"{path}: has format {state['format']}, this version reads format {FORMAT}")
        for name, expected in state["files"].items():
            if (found := _fingerprint(path / name)) != expected:
                raise CheckpointError(f"{path / name}: damaged; {_damage(expected, found)}")
        arrays = {name: load_file(path / name) for name in (WEIGHTS, MOMENTUM)}
        extras = [load_file(path / name) if name in state["files"] else {} for name in (EMA, GRADIENTS, INPUTS)]
        return Checkpoint(path, arrays[WEIGHTS], arrays[MOMENTUM], state, *extras)
    except FileNotFoundError as error:
        raise CheckpointError(f"{error.filename}: does not exist; {path} is not a complete checkpoint") from None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CheckpointError(f"{path}: not a readable checkpoint ({type(error).__name__}: {error})") from error


def listing(folder: Path) -> list[Path]:
    """The checkpoints in RUN/checkpoints, oldest first by their number; other names are passed over."""
    try:
        names = os.listdir(folder)  # glob takes a folder that may not be read for an empty one
    except FileNotFoundError:
        return []
    found = ((NAME.fullmatch(name), folder / name) for name in names if (folder / name).is_dir())
    return [path for _, path in sorted((int(match[1]), path) for match, path in found if match)]


def newest(folder: Path, warn: Callable[[str], None]) -> Checkpoint | None:
    """The newest checkpoint that can be read; damaged ones are passed over with a warning."""
    for path in reversed(listing(folder)):
        try:
            return load(path)
        except CheckpointError as error:
            warn(f"checkpoint passed over: {error}")
    return None


def mark_best(folder: Path, checkpoint: Path) -> None:
    """Note which checkpoint is the best."""
    with writing(folder / BEST) as partial:
        partial.write_text(checkpoint.name + "\n")


def best(folder: Path) -> Path | None:
    """The checkpoint noted as the best, where it is still there."""
    try:
        path = folder / (folder / BEST).read_text().strip()
    except OSError:
        return None
    return path if NAME.fullmatch(path.name) and path.is_dir() else None


def prune(folder: Path, keep: int) -> None:
    """Delete all but the newest `keep` checkpoints and the best."""
    kept = best(folder)
    for path in listing(folder)[:-keep]:
        if path != kept:
            doomed = folder / f"{TEMPORARY}{path.name}"  # a half-deleted checkpoint has no final name
            shutil.rmtree(doomed, ignore_errors=True)
            path.rename(doomed)
            shutil.rmtree(doomed)


def clean(folder: Path) -> None:
    """Put right what writers that were killed left behind."""
    for path in folder.glob(f"{TEMPORARY}*{REPLACED}"):
        final = folder / path.name.removeprefix(TEMPORARY).removesuffix(REPLACED)
        if not final.exists():
            path.rename(final)
    for path in folder.glob(f"{TEMPORARY}*"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()


def check_tensors(found: Arrays, expected: Shapes, what: str) -> None:
    """Raise CheckpointError, listing every tensor that is missing, left over or of another shape."""
    faults = [f"  {name}: missing, expected {_shape(expected[name])}" for name in expected if name not in found]
    faults += [f"  {name}: {_shape(found[name].shape)}, not in the network" for name in found if name not in expected]
    faults += [
        f"  {name}: expected {_shape(shape)}, found {_shape(found[name].shape)}"
        for name, shape in expected.items()
        if name in found and tuple(found[name].shape) != tuple(shape)
    ]
    if faults:
        raise CheckpointError("\n".join([f"{what} does not fit the network:", *faults]))


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def _write(path: Path, text: str) -> None:
    with naming(path):
        path.write_text(text, "utf-8")


def _fingerprint(path: Path) -> dict[str, int]:
    crc, size = 0, 0
    with open(path, "rb") as file:
        while part := file.read(1 << 20):
            crc, size = zlib.crc32(part, crc), size + len(part)
    return {"bytes": size, "crc32": crc}


def _damage(expected: dict[str, int], found: dict[str, int]) -> str:
    if found["bytes"] != expected["bytes"]:
        return f"expected {expected['bytes']} bytes, found {found['bytes']}"
    return f"expected CRC {expected['crc32']:08x}, found {found['crc32']:08x}"
