"""The input layer: pixels to a map of numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from kernels import image
from layers.base import LABELS, Emit, Layer, Shape, axes
from layers.options import Size, layer, option

WINDOW = ("corner", "mirror")  # of every batch, with the pixels or cells and the labels
COLOUR, CONTRAST, ERASED = ("colour",), ("pull",), ("erased",)  # what augmentation may add in training...
MIXED = ("partner", "patch", "blend")
TARGETS = ("second", "share")  # ...and to the labels, where images are mixed


def together(names: Iterable[str]) -> int:
    """How many neighbours of a batch that brings these must come to the same device: two are mixed with each other."""
    return 2 if set(MIXED) & set(names) else 1


def per_sample(channels: int, height: int, width: int, cell: int = 0) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and type of what a batch may bring of each sample, an image being `height` x `width`; "": a real number."""
    return {
        "pixels": ((height, width, channels), "uint8"),
        "cells": ((cell,), "uint8"),
        "corner": ((2,), "int32"),
        "mirror": ((), "uint8"),
        LABELS: ((), "int32"),
        "colour": ((channels, channels + 2), ""),
        "pull": ((channels,), ""),
        "erased": ((4,), "int32"),
        "partner": ((), "int32"),
        "patch": ((4,), "int32"),
        "blend": ((), ""),
        "second": ((), "int32"),
        "share": ((), ""),
    }


@layer("data")
@dataclass(frozen=True)
class Data(Layer):
    """y[c, h, w, n] = (pixels[n, top + h, left + w, c] - mean[c]) / std[c], mirrored left to right if mirror[n].

    pixels uint8 [N, H', W', C], corner int32 [N, 2] = (top, left) and mirror uint8 [N] come with each batch; what lies
    outside an image is 0. mean, on the scale 0 to 255, is one number a channel or an image [C, H, W]; std [C]; both are
    constants of the run. Augmentation (data.train) changes colours, erases and mixes here, too; a random resized crop
    comes in a cell and is resized here. y: [C, H, W, N].
    """

    arity: ClassVar[tuple[int, int | None]] = (0, 0)

    channels: int = option(3, least=1, doc="channels of an image: 3 for RGB, 1 for grey")
    size: Size = option(least=1, doc="the part of an image that the network sees, pixels")

    def output(self, *inputs: Shape) -> Shape:
        return Shape(self.channels, *self.size)

    def forward(self, emit: Emit, xs: Sequence[Any], y: Any) -> None:
        feeds = {name: emit.input(name) for name in (*WINDOW, "mean", "std")}
        feeds["pixels"] = self._resampled(emit, y) or emit.input("pixels")
        extras = {name: emit.optional(name) for name in (*COLOUR, *CONTRAST, *ERASED, *MIXED)}
        _, source_h, source_w, _ = feeds["pixels"].shape
        sizes: dict[str, Any] = {**axes(y), "source_h": source_h, "source_w": source_w}
        sizes["mean_image"] = len(feeds["mean"].shape) == 3
        if all(value is None for value in extras.values()):
            emit(image.PREPARE, image.Prepare(**sizes), **feeds, y=y)
        else:
            g = image.Augment(**sizes, contrast=extras["pull"] is not None)
            emit(image.AUGMENT, g, **feeds, **extras, y=y)

    def _resampled(self, emit: Emit, y: Any) -> Any:
        """Images of the network's size, where a batch brings cells."""
        cells = emit.optional("cells")
        if cells is None:
            return None
        pixels = emit.keep("pixels", (y.shape[3], *self.size, self.channels), "uint8")
        emit(image.RESAMPLE, image.Resample(**axes(y), cell=cells.shape[1]), cells=cells, pixels=pixels)
        return pixels

    def backward(self, emit: Emit, xs: Sequence[Any], y: Any, dy: Any, dxs: Sequence[Any]) -> None:
        """Nothing: images have no gradient."""
