"""Trained networks for other tools: safetensors and npz under PyTorch's names, or ONNX."""

import json
from pathlib import Path

import numpy as np

from convnet import inputs, session
from convnet.checkpoint import CONFIG, Arrays, Checkpoint, check_tensors, write_tensors
from convnet.config import load_config
from convnet.errors import UserError
from convnet.formats import torchvision
from convnet.formats.files import writing
from convnet.graph.net import Network

FORMATS = ("safetensors", "npz", "onnx")


def export(found: Checkpoint, target: Path, kind: str, *, arch: str | None = None) -> None:
    """Write a checkpoint as `kind` of FORMATS; the file is complete or not there.

    arch: one of torchvision's, whose names the tensors get; None: our names, "layer.weight", which are those of a
    PyTorch module with the same layers.
    """
    config = load_config(found.path / CONFIG)
    network = session.make_network(config)
    check_tensors(found.trained, network.shapes, str(found.path))
    if kind == "onnx":
        from convnet.formats.onnx import onnx_model

        mean, std = inputs.normalisation(config, network, found)
        model = onnx_model(network, found.trained, mean=mean, std=std, name=config.name)
        with writing(target) as partial:
            partial.write_bytes(model.SerializeToString())
        return
    tensors = named(network, found.trained, found.state["step"], arch)
    with writing(target) as partial:
        if kind == "npz":
            with partial.open("wb") as file:
                np.savez(file, allow_pickle=False, **tensors)
        else:
            write_tensors(partial, tensors, {"format": "pt", "classes": json.dumps(found.state["classes"])})


def named(network: Network, weights: Arrays, steps: int, arch: str | None) -> Arrays:
    """The tensors under the names that PyTorch's modules give them, with the counter that its batch norm keeps."""
    names = torchvision.names(network, arch) if arch else {name: name for name in weights}
    counters = {
        names[f"{node.name}.running_mean"].replace("running_mean", torchvision.COUNTER): np.array(steps, np.int64)
        for node in network.nodes.values()
        if node.layer.type == "batch_norm"
    }
    return {names[name]: array for name, array in weights.items()} | counters


def format_of(target: Path, given: str | None) -> str:
    """The format given, or the one that the file's name ends with; UserError where the two are not one.

    A file that is there already is replaced only where it ends as files of its format do.
    """
    ending = target.suffix.lower().removeprefix(".")
    if ending not in FORMATS and given is None:
        endings = ", ".join(f".{kind}" for kind in FORMATS)
        raise UserError(f"{target}: expected a name that ends in one of {endings}, or --format")
    if ending in FORMATS and given not in (None, ending):
        raise UserError(f"{target}: ends as {ending}, found --format {given}")
    if target.is_file() and ending not in FORMATS:
        raise UserError(f"{target}: exists already; expected a new file, or one that ends in .{given}")
    return given or ending
