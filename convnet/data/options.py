"""The `data` section: where the images come from and what is done to them."""

from dataclasses import dataclass
from typing import ClassVar

from layers.options import Options, Registry, option

SPLITS = Registry("data source")


@dataclass(frozen=True)
class Split(Options):
    """Base of all sources of samples; the training and the validation split each name one."""

    registry: ClassVar[Registry | None] = SPLITS


@SPLITS.register("folder")
@dataclass(frozen=True)
class Folder(Split):
    """Class folders of images: PATH/<class>/**/<image>; the label is the rank of the class name in sorted order."""

    path: str = option(doc="folder that holds one folder for each class")
    resize: int | str | None = option(
        None, least=1, choices=("none",), doc="short side after resizing, pixels; none: keep; null: what the crop needs"
    )
    pad: int = option(0, least=0, doc="zero pixels added at each edge before the crop")
    crop: str = option(
        "center",
        choices=("center", "random", "resized"),
        doc="the network's input: cut out at the centre, at a random place, or (resized) a part of random place, area "
        "and aspect, scaled: torchvision's RandomResizedCrop",
    )
    mirror: bool = option(False, doc="mirror left to right with probability 1/2")
    on_error: str = option("error", choices=("error", "skip"), doc="a broken image: stop, or leave it out")
    class_list: str | None = option(None, doc="file with one class name a line, in label order; null: sorted folders")
    allow_empty: bool = option(False, doc="accept classes without images")
    max_pixels: int = option(178_956_970, least=1, doc="a larger image is an error; the default is Pillow's own limit")


@dataclass(frozen=True)
class Data(Options):
    """Inputs are (pixel - mean) / std, pixels being 0..255: torchvision's numbers times 255."""

    mean: tuple[float, ...] = option((127.5,), doc="one number, or one for each channel")
    std: tuple[float, ...] = option((127.5,), above=0, doc="one number, or one for each channel")
    threads: int | None = option(None, least=1, doc="decoding threads; null: one for each CPU")
    cache: int | str = option(
        "auto", least=0, choices=("auto", "off"), doc="decoded images kept in memory: auto, off or MiB"
    )
    exif_orientation: bool = option(
        False, doc="turn images as their EXIF tag says (torchvision does not), in training, evaluation and prediction"
    )
    train: Split = option(doc="what is trained on")
    val: Split | None = option(None, doc="what is evaluated on; null: nothing")
