"""torchvision's networks: their names for our layers, and their published weights as checkpoints of ours."""

from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

import convnet
from convnet import __version__, checkpoint, run, session
from convnet.checkpoint import Arrays
from convnet.config import Config, dump, load_config
from convnet.data.sources.classes import read_class_list
from convnet.errors import UserError
from convnet.formats.pytorch import read_pytorch
from convnet.graph.net import Network

CONFIGS = Path("configs", "imagenet")
CLONE = Path(convnet.__file__).parents[1]
COUNTER = "num_batches_tracked"  # torchvision's count of the batches that its batch norm has seen; ours has none
VGG16 = {
    f"stage{stage}.{i}.conv": f"features.{number}"
    for stage, numbers in enumerate([(0, 2), (5, 7), (10, 12, 14), (17, 19, 21), (24, 26, 28)], 1)
    for i, number in enumerate(numbers)
}
FIRE = {
    f"fire{i}.{part}": f"features.{number}.{part}"
    for i, number in enumerate((3, 4, 6, 7, 9, 10, 11, 12), 2)
    for part in ("squeeze", "expand1x1", "expand3x3")
}


def _resnet(convolutions: int, *stages: int) -> dict[str, str]:
    """Names of a ResNet, which are the same here and there. convolutions: of a block; stages: blocks of each."""
    names = ["conv1", "bn1", "fc"]
    for stage, blocks in enumerate(stages, 1):
        parts = [f"{part}{i}" for i in range(1, convolutions + 1) for part in ("conv", "bn")]
        names += [f"layer{stage}.{block}.{part}" for block in range(blocks) for part in parts]
        if stage > 1 or convolutions == 3:  # where the shape changes
            names += [f"layer{stage}.0.downsample.{i}" for i in (0, 1)]
    return {name: name for name in names}


# By architecture: our config, and torchvision's name of each layer with weights.
ARCHITECTURES: dict[str, tuple[str, dict[str, str]]] = {
    "alexnet": ("alexnet-owt", {
        "conv1": "features.0", "conv2": "features.3", "conv3": "features.6", "conv4": "features.8",
        "conv5": "features.10", "fc6": "classifier.1", "fc7": "classifier.4", "fc8": "classifier.6",
    }),
    "vgg16": ("vgg16", {**VGG16, "hidden.0.fc": "classifier.0", "hidden.1.fc": "classifier.3", "fc": "classifier.6"}),
    "resnet18": ("resnet18", _resnet(2, 2, 2, 2, 2)),
    "resnet50": ("resnet50", _resnet(3, 3, 4, 6, 3)),
    "resnet152": ("resnet152", _resnet(3, 3, 8, 36, 3)),
    "squeezenet1_1": ("squeezenet1_1", {"conv1": "features.0", **FIRE, "conv10": "classifier.1"}),
}  # fmt: skip


def names(network: Network, arch: str) -> dict[str, str]:
    """torchvision's name of each parameter and state of a network; UserError where the network is not `arch`."""
    ours, (_, modules) = (*network.params, *network.states), ARCHITECTURES[arch]
    layers = dict.fromkeys(name.rpartition(".")[0] for name in ours)
    faults = [f"  {layer}: not a layer of {arch}" for layer in layers if layer not in modules]
    faults += [f"  {layer}: missing" for layer in modules if layer not in layers]
    if faults:
        raise UserError("\n".join([f"the network is not {arch} as torchvision has it:", *faults]))
    split = {name: name.rpartition(".") for name in ours}
    return {name: f"{modules[layer]}.{leaf}" for name, (layer, _, leaf) in split.items()}


def read_weights(path: Path) -> Arrays:
    """The tensors of a safetensors file or of a PyTorch file, by name."""
    with path.open("rb") as file:
        head = file.read(9)
    if not head:
        raise UserError(f"{path}: is empty; expected a safetensors file, or one of PyTorch")
    if head[8:] != b"{":  # safetensors: eight bytes of length, then JSON
        return read_pytorch(path)
    try:
        return load_file(path)
    except (SafetensorError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path}: not a readable safetensors file: {error}") from None


def import_torchvision(
    weights: Path,
    arch: str,
    *,
    config_file: Path | None = None,
    overrides: Sequence[str] = (),
    classes: Path | None = None,
    output: Path | None = None,
) -> run.Run:
    """A run with one checkpoint, of step 0, that holds the weights in a file.

    config_file: of the network; default: the one of the architecture in configs/imagenet. classes: a file with the name
    of each class; default: the folders of the config's data, and numbers where there are none. Nothing is written
    unless every tensor fits.
    """
    config = load_config(config_file or default_config(arch), overrides)
    network = session.make_network(config)
    theirs = names(network, arch)
    shapes = network.shapes
    found = {name: array for name, array in read_weights(weights).items() if not name.endswith(f".{COUNTER}")}
    checkpoint.check_tensors(found, {theirs[name]: shape for name, shape in shapes.items()}, str(weights))
    _check_numbers(found, weights)
    arrays = {name: found[theirs[name]].astype(np.float32) for name in shapes}
    state = {
        "step": 0, "epoch": 0, "position": 0, "version": __version__, "samples": 0, "extensions": {},
        "classes": class_names(config, network, classes), "source": weights.name,
    }  # fmt: skip
    base = output or Path(config.run.dir or arch)
    if output and run.occupied(output):
        raise UserError(f"{output}: is there already; nothing is written")
    with run.making(base) as made:
        checkpoint.save(made.checkpoints, arrays, {}, dump(config), state)
        made.keep(dump(config), overrides)
    return made


def _check_numbers(arrays: Arrays, weights: Path) -> None:
    """Raise UserError, listing every tensor with what is no weight: another type of number, or none that is finite."""
    largest, faults = np.finfo(np.float32).max, []
    for name, array in arrays.items():
        if array.dtype.kind != "f":
            faults.append(f"  {name}: expected floating-point numbers, found {array.dtype}")
        elif count := array.size - np.count_nonzero(np.abs(array) <= largest):
            faults.append(
                f"  {name}: expected finite numbers, found {count} of {array.size} NaN, infinite or too large"
            )
    if faults:
        raise UserError("\n".join([f"{weights} does not hold the weights of a network:", *faults]))


def default_config(arch: str) -> Path:
    """Our config of an architecture: in the clone, or where the package was installed."""
    config = CONFIGS / f"{ARCHITECTURES[arch][0]}.yaml"
    places = [CLONE / config, *(Path(str(file.locate())) for file in _installed() if file.match(f"convnet/{config}"))]
    for path in places:
        if path.is_file():
            return path
    raise UserError(f"'{places[0]}' does not exist; --config names the network's, {config} in the clone")


def _installed() -> list[metadata.PackagePath]:
    """The files of the package; none where it was not installed."""
    try:
        return metadata.files("convnet") or []
    except metadata.PackageNotFoundError:
        return []


def class_names(config: Config, network: Network, file: Path | None) -> list[str]:
    """The name of each class, in the order of the outputs, which for torchvision is that of the sorted folder names."""
    count, splits = network.outputs, (config.data.val, config.data.train)
    folders = [f for f in (_folders(Path(getattr(split, "path", ""))) for split in splits) if len(f) == count]
    if not file:
        return folders[0] if folders else [f"{i:0{len(str(count - 1))}}" for i in range(count)]
    found = list(read_class_list(file, folders[0] if folders else ()))
    if len(found) != count:
        raise UserError(f"{file}: expected {count} classes, one for each output, found {len(found)}")
    return found


def _folders(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.is_dir()) if root.is_dir() else []
