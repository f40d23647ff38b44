"""The kinds of `data.train` and `data.val`: options, and the source that they make."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

from convnet.data.options import RESIZE, SPLITS, Split
from convnet.data.sources import (
    CifarSource,
    FolderSource,
    ListSource,
    RawSource,
    ShardSource,
    Source,
    SyntheticSource,
)
from layers.options import Size, option

CLASS_LIST = "file with one class name a line, in label order"
ALLOW_EMPTY = "accept classes without images"
expand = os.path.expanduser


def _expand(path: str | None) -> str | None:
    return None if path is None else expand(path)


@SPLITS.register("folder")
@dataclass(frozen=True)
class Folder(Split):
    """Class folders of images: PATH/<class>/**/<image>; the label is the rank of the class name in sorted order."""

    path: str = option(doc="folder that holds one folder for each class")
    class_list: str | None = option(None, doc=f"{CLASS_LIST}; null: sorted folders")
    allow_empty: bool = option(False, doc=ALLOW_EMPTY)

    def source(self, classes: Sequence[str] | None) -> Source:
        names = _expand(self.class_list) if classes is None else None
        return FolderSource(expand(self.path), classes=classes, class_list=names, allow_empty=self.allow_empty)


@SPLITS.register("list")
@dataclass(frozen=True)
class List(Split):
    """A text file with an image a line: its path, a space or tab or comma, and its label, a number or a class name."""

    path: str = option(doc="the text file")
    root: str | None = option(None, doc="folder that paths are relative to; null: that of the text file")
    class_list: str | None = option(None, doc=f"{CLASS_LIST}; null: the labels themselves, names sorted")
    allow_empty: bool = option(False, doc=ALLOW_EMPTY)

    def source(self, classes: Sequence[str] | None) -> Source:
        return ListSource(
            expand(self.path),
            root=_expand(self.root),
            classes=classes,
            class_list=_expand(self.class_list),
            allow_empty=self.allow_empty,
        )


@dataclass(frozen=True)
class Prepared(Split):
    """Base of sources whose images have their size already."""

    resize: int | str | None = option("none", least=1, choices=("none",), doc=RESIZE)


@SPLITS.register("shards")
@dataclass(frozen=True)
class Shards(Prepared):
    """Tar files as `convnet prepare` or WebDataset makes them: KEY.jpg (or .png, ...) and its label KEY.cls."""

    path: str = option(doc="folder of .tar files")
    class_list: str | None = option(None, doc=f"{CLASS_LIST}; null: the names kept by `convnet prepare`, or numbers")
    allow_empty: bool = option(False, doc=ALLOW_EMPTY)

    def source(self, classes: Sequence[str] | None) -> Source:
        return ShardSource(
            expand(self.path), classes=classes, class_list=_expand(self.class_list), allow_empty=self.allow_empty
        )


@SPLITS.register("raw")
@dataclass(frozen=True)
class Raw(Prepared):
    """Decoded images of one size in a memory-mapped file, as `convnet prepare --format raw` makes them."""

    path: str = option(doc="folder of images.npy, uint8 [n, height, width, channels], and index.npz or labels.npy")
    class_list: str | None = option(None, doc=f"{CLASS_LIST}; null: the names kept by `convnet prepare`, or numbers")
    allow_empty: bool = option(False, doc=ALLOW_EMPTY)

    def source(self, classes: Sequence[str] | None) -> Source:
        return RawSource(
            expand(self.path), classes=classes, class_list=_expand(self.class_list), allow_empty=self.allow_empty
        )


@SPLITS.register("cifar")
@dataclass(frozen=True)
class Cifar(Split):
    """CIFAR-10 or CIFAR-100 as their authors publish them ("python version"), or as cuda-convnet has them."""

    path: str = option(doc="folder of the batches, such as cifar-10-batches-py, or the .tar.gz file")
    part: str = option(doc="which images", choices=("train", "test"))
    batches: tuple[int, ...] = option((), least=1, doc="numbers of CIFAR-10's training batches; []: all")
    labels: str = option("fine", choices=("fine", "coarse"), doc="CIFAR-100's 100 classes, or its 20 superclasses")

    def source(self, classes: Sequence[str] | None) -> Source:
        return CifarSource(expand(self.path), part=self.part, batches=self.batches, labels=self.labels, classes=classes)


@SPLITS.register("synthetic")
@dataclass(frozen=True)
class Synthetic(Split):
    """Made-up images that can be learnt: a pattern for each class under noise. For trying things out and for timing."""

    samples: int = option(1024, least=1, doc="images; all are held in memory")
    classes: int = option(10, least=1, doc="classes, in turn")
    size: Size = option(least=1, doc="of an image, pixels")
    channels: int = option(3, least=1, most=3, doc="1 or 3")
    noise: float = option(0.5, least=0, most=1, doc="part of a pixel's range that is noise; 1: nothing can be learnt")
    seed: int = option(0, least=0, doc="another seed has other noise on the same patterns: a validation set")

    def source(self, classes: Sequence[str] | None) -> Source:
        return SyntheticSource(
            self.samples,
            self.classes,
            (self.size.height, self.size.width, self.channels),
            noise=self.noise,
            seed=self.seed,
            names=classes,
        )
