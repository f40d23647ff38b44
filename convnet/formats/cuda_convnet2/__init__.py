"""Networks of cuda-convnet and cuda-convnet2: layer definitions and layer parameters to a config.

Layers that each ran on one of several GPUs do so here, on the rank of that place. Where layers had replicas, and so
shares of a batch, they become one network without places, which `parallel` spreads.
"""

import textwrap
from pathlib import Path
from typing import Any

from convnet import session
from convnet.config import ConfigError, load_config
from convnet.config.dump import flow_text
from convnet.errors import UserError
from convnet.formats.cuda_convnet2.cfg import Section, read_cfg
from convnet.formats.cuda_convnet2.conversion import Check, Conversion
from convnet.formats.cuda_convnet2.layers import convert
from convnet.formats.cuda_convnet2.rates import solver_section
from convnet.formats.files import writing
from convnet.graph.net import Network

EVERYWHERE = ("data", "rscale", "batch_norm")  # types that do not run on one rank
BATCH = 128  # cuda-convnet2's default
MEAN = {1: [127.5], 3: [123.675, 116.28, 103.53]}  # of the pixels, by channels: grey, and ImageNet's colours


def import_network(layers: Path, params: Path, target: Path, *, size: int, data: str, epochs: int) -> list[str]:
    """Write a config to `target`; what it does not say is returned, a line each, and stands in its header.

    size: of the images that the network sees, pixels; data: folder with train and val; epochs: of training. The files
    say none of the three. ConfigError tells the place in the .cfg; nothing is written then.
    """
    if target.is_file():
        raise UserError(f"{target}: is there already; nothing is written")
    net = Conversion(size)
    parameters = read_cfg(params)
    for section in read_cfg(layers).values():
        _merge(section, parameters.pop(section.name, None))
        convert(net, section)
    if not net.layers:
        raise ConfigError("expected sections of layers, found none with a layer of a network", position=str(layers))
    net.notes += [f"{s.place}: no layer is called '{name}'" for name, s in parameters.items()]
    solver, own, notes = solver_section(net.learned)
    for name, options in own.items():
        net.layers[name] |= {"solver": options} if options else {}
    net.notes += notes + _towers(net)
    text = _text(net, solver, f"{layers.name} and {params.name}", data, epochs)
    with writing(target) as partial:
        partial.write_text(text, "utf-8")
        _check(net, partial)
    return net.notes


def _merge(section: Section, parameters: Section | None) -> None:
    """One section of both: a layer's parameters stand in the second file, a few of them in either."""
    section.entries |= parameters.entries if parameters else {}


def _towers(net: Conversion) -> list[str]:
    if net.devices < 2:
        return []
    replicas = sorted({len(gpus) for gpus in net.gpus.values() if gpus})
    if replicas == [1]:
        _write_ranks(net)
        return [f"it ran on {net.devices} GPUs, a layer on one of them; so it does on as many ranks, by its `ranks`"]
    copies = f"{' or '.join(map(str, replicas))} replicas"
    return [f"it ran on {net.devices} GPUs, a layer in {copies}; here it is one network, and `parallel` spreads it"]


def _write_ranks(net: Conversion) -> None:
    """Of each layer the place of its GPU among those used; images and costs are everybody's."""
    used = sorted({gpu for gpus in net.gpus.values() for gpu in gpus})
    for name, section in net.sections.items():
        shared = net.layers[name]["type"] in EVERYWHERE or section.text("type").startswith("cost")
        gpus = net.gpus.get(section.name)
        if gpus and not shared:
            net.layers[name]["ranks"] = [used.index(gpus[0])]


def _check(net: Conversion, file: Path) -> None:
    """Load and wire what was written; a mistake is told by its place in the .cfg."""
    try:
        network = session.make_network(load_config(file))
    except ConfigError as error:
        section = net.sections.get(str(error.path[1])) if len(error.path) > 1 else None
        raise ConfigError(error.message, error.path, position=section.place if section else "") from None
    for check in net.checks:
        check.against(_found(network, check))


def _found(network: Network, check: Check) -> int:
    node = network[check.layer]
    if check.option == "channels":
        return node.in_shapes[0].channels
    return node.shape.channels if check.option == "outputs" else node.shape.height


def _text(net: Conversion, solver: dict[str, Any], source: str, data: str, epochs: int) -> str:
    """The config, a layer a line."""
    channels = next((layer["channels"] for layer in net.layers.values() if layer["type"] == "data"), 3)
    head = [f"Converted from {source} of cuda-convnet2.", *net.notes]
    head += ["Data, image size, batch size and epochs are not in these files. A mean colour stands for the mean image."]
    lines = [line for text in head for line in textwrap.wrap(text, 118)]
    split = {"type": "folder", "path": f"{data}/train", "crop": "random", "mirror": True}
    sections: dict[str, dict[str, Any]] = {
        "data": {
            "mean": MEAN.get(channels, [127.5]),
            "std": 1,
            "train": split,
            "val": {"type": "folder", "path": f"{data}/val"},
        },
        "layers": net.layers,
        "solver": solver,
        "train": {"batch_size": BATCH, "epochs": epochs},
    }
    if net.devices > 1:
        sections["parallel"] = {"conv": "data", "fc": "data"}
    return "".join(f"# {line}\n" for line in lines) + "".join(map(_section, sections, sections.values()))


def _section(name: str, options: dict[str, Any]) -> str:
    return f"\n{name}:\n" + "".join(f"  {key}: {_flow(value)}\n" for key, value in options.items())


def _flow(value: Any) -> str:
    return flow_text(_short(value))


def _short(value: Any) -> Any:
    """Whole numbers without a point."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_short(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
