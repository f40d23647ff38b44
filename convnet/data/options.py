"""The `data` section: where the images come from and what is done to them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from convnet.data.augment_options import AutoAugment, ColorJitter, ColorNoise, RandomErasing
from convnet.data.decode import MAX_PIXELS
from convnet.data.decoders import DECODERS
from convnet.data.sources import Source
from convnet.data.transform import CROPS
from convnet.data.workers import WORKERS
from layers.options import ConfigError, Options, Registry, option, options

SPLITS = Registry("data source")
RESIZE = "short side after resizing, pixels; none: keep; null: what the crop needs"
OF_TRAINING = ("mirror", "auto_augment", "color_jitter", "color_noise", "random_erasing", "mixup", "cutmix")


@dataclass(frozen=True)
class Split(Options):
    """Base of all sources of samples, with what is done to an image; convnet/data/splits.py has one for each source."""

    registry: ClassVar[Registry | None] = SPLITS

    resize: int | str | None = option(None, least=1, choices=("none",), doc=RESIZE)
    pad: int = option(0, least=0, doc="zero pixels added at each edge before the crop")
    crop: str = option(
        "center",
        choices=CROPS,
        doc="the network's input: cut out at the centre, at a random place, or (resized) a part of random place, area "
        "and aspect, scaled: torchvision's RandomResizedCrop",
    )
    mirror: bool = option(False, doc="mirror left to right with probability 1/2")
    auto_augment: AutoAugment | None = option(None, doc="random operations on the cut image: trivial, rand; null: none")
    color_jitter: ColorJitter = option(ColorJitter(), doc="random colours")
    color_noise: ColorNoise | None = option(None, doc="noise in the colours of an image; null: none")
    random_erasing: RandomErasing | None = option(None, doc="an erased rectangle; null: none")
    mixup: float = option(
        0.0, least=0, most=100, doc="alpha: images are blended in pairs by Beta(alpha, alpha); 0: not"
    )
    cutmix: float = option(
        0.0, least=0, most=100, doc="alpha: a part is taken from another image; 0: not; with mixup, one of both"
    )
    on_error: str = option("error", choices=("error", "skip"), doc="a broken image: stop, or leave it out")
    max_pixels: int = option(MAX_PIXELS, least=1, doc="a larger image is an error; the default is Pillow's own limit")

    def source(self, classes: Sequence[str] | None) -> Source:
        """The samples; raises DataError.  classes: those of a model, in index order; None: the source's own."""
        raise NotImplementedError


@dataclass(frozen=True)
class Data(Options):
    """Inputs are (pixel - mean) / std, pixels being 0..255: torchvision's numbers times 255."""

    mean: tuple[float, ...] | str = option(
        (127.5,),
        choices=("channels", "image"),
        doc="one number, or one for each channel; or of the statistics, one for each channel, or the mean image",
    )
    std: tuple[float, ...] | str = option(
        (127.5,), above=0, choices=("channels",), doc="one number, or one for each channel; or those of the statistics"
    )
    statistics: str | None = option(None, doc="file that convnet check-data made of the training images")
    decoder: str = option(
        "auto",
        choices=("auto", *DECODERS),
        doc="what reads JPEGs; all give the same pixels; auto: simplejpeg, the faster, where it is installed",
    )
    threads: int | str | None = option(
        "auto",
        least=1,
        choices=("auto",),
        doc="that decode; auto: as many as keep the GPU busy, up to one for each CPU, which ranks divide",
    )
    workers: str = option(
        "threads",
        choices=WORKERS,
        doc="processes: where the Python part of decoding holds threads up (many CPUs, small images, Pillow); no cache",
    )
    cache: int | str = option(
        "auto", least=0, choices=("auto", "off"), doc="decoded images kept in memory: auto, off or MiB"
    )
    exif_orientation: bool = option(
        False, doc="turn images as their EXIF tag says (torchvision does not), in training, evaluation and prediction"
    )
    train: Split = option(doc="what is trained on")
    val: Split | None = option(None, doc="what is evaluated on; null: nothing")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers == "processes" and self.cache not in ("auto", "off", 0):
            told = "processes that decode keep no images; expected auto or off, or workers: threads"
            raise ConfigError(f"{told}, found {self.cache}", ("cache",))
        if self.val:
            for name, _, _, default in options(Split):
                if name in OF_TRAINING and getattr(self.val, name) != default:
                    raise ConfigError("is for training alone; expected it under data.train", ("val", name))
            if self.val.crop != "center":
                raise ConfigError(f"expected center in evaluation, found {self.val.crop}", ("val", "crop"))
        wants = next((n for n in ("mean", "std") if isinstance(getattr(self, n), str)), None)
        wants = wants or ("train" if self.train.color_noise else None)
        if wants and self.statistics is None:
            path = ("train", "color_noise") if wants == "train" else (wants,)
            raise ConfigError("needs data.statistics, the file that `convnet check-data CFG` makes", path)
