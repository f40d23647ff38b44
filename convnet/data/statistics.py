"""What `convnet check-data` finds out about the colours of a training set, in one .npz file."""

import os
from dataclasses import dataclass, fields
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from convnet.data.errors import DataError

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """Of pixels on the scale 0 to 255, C being their channels.

    mean_image: [H, W, C], the mean of all images, resized and cut at the centre alike.
    mean, std: [C], of all pixels.
    pca_std, pca_vectors: [C] and [C, C], standard deviations of the principal components of colours, and their
    directions, each a column.
    """

    mean_image: Floats
    mean: Floats
    std: Floats
    pca_std: Floats
    pca_vectors: Floats

    @property
    def components(self) -> Floats:
        """[C, C], the principal components, each a column as long as its standard deviation."""
        return self.pca_vectors * self.pca_std

    def centre(self, height: int, width: int) -> Floats:
        """The middle of the mean image as [C, height, width]; raises DataError where it is smaller."""
        tall, wide, _ = self.mean_image.shape
        if height > tall or width > wide:
            raise DataError(f"expected a mean image of {height}x{width} or more, found {tall}x{wide}")
        top, left = (tall - height) // 2, (wide - width) // 2
        return self.mean_image[top : top + height, left : left + width].transpose(2, 0, 1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a .npz file; OSError where that cannot be."""
        with open(path, "wb") as file:
            arrays: dict[str, Any] = {field.name: np.float32(getattr(self, field.name)) for field in fields(self)}
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str], channels: int) -> "Statistics":
        """Read what `save` has written of images of so many channels; raises DataError, which names the file."""
        try:
            with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:  # numpy leaves open what is damaged
                found = {field.name: np.asarray(file[field.name], np.float64) for field in fields(cls)}
        except FileNotFoundError:
            raise DataError(f"'{path}' does not exist; `convnet check-data CFG` makes it") from None
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile) as error:
            told = "not in NumPy's format" if isinstance(error, ValueError) else error  # it says how to unpickle
            raise DataError(f"'{path}' is no file of statistics, as `convnet check-data` makes them: {told}") from None
        _check(os.fspath(path), found, channels)
        return cls(**found)


def _check(path: str, found: dict[str, Any], channels: int) -> None:
    """The shapes, and that all are numbers by which pixels can be divided."""
    height, width = found["mean_image"].shape[:2] if found["mean_image"].ndim == 3 else (0, 0)
    shapes = {"mean_image": (height, width, channels), "pca_vectors": (channels, channels)}
    for name, array in found.items():
        expected = shapes.get(name, (channels,))
        if array.shape != expected:
            shown = "H x W x C" if name == "mean_image" else "x".join(map(str, expected))
            message = f"expected '{name}' of the shape {shown} for {channels} channels, found {list(array.shape)}"
            raise DataError(f"'{path}': {message}")
        if not np.isfinite(array).all() or (name == "std" and not (array > 0).all()):
            raise DataError(f"'{path}': '{name}' holds what is no {'positive ' * (name == 'std')}number")
