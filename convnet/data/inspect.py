"""Every image of a source, looked at once: can it be decoded, what is odd about it, and the sums of its colours."""

import io
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from convnet.data.decode import FORMATS, ORIENTATION
from convnet.data.errors import DecodeError
from convnet.data.pixels import Pixels
from convnet.data.sources import EncodedSource, PixelSource, Place, Source
from convnet.data.sources.index import DIGEST, digest
from convnet.data.statistics import Statistics
from convnet.data.transform import Transform
from convnet.processes import in_processes

PIECE = 64  # images that a process takes at a time
NAMED = {extension: kind for kind, extensions in FORMATS.items() for extension in extensions}
Bar = Callable[..., Any]


@dataclass
class Sums:
    """Of pixels, as integers, so that they do not depend on an order.

    images: their number.  total: int64 [H, W, C].  products: int64 [C, C], of the channels of each pixel.
    """

    images: int
    total: NDArray[np.int64]
    products: NDArray[np.int64]

    @classmethod
    def of(cls, images: NDArray[np.uint8]) -> "Sums":
        """Of images [n, H, W, C]."""
        channels = images.shape[3]
        products = np.zeros((channels, channels), np.int64)
        for image in images:
            pixels = image.reshape(-1, channels).astype(np.float64)  # exact: sums stay below 2^53
            products += np.rint(pixels.T @ pixels).astype(np.int64)
        return cls(len(images), images.sum(0, dtype=np.int64), products)

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(self.images + other.images, self.total + other.total, self.products + other.products)

    def statistics(self) -> Statistics:
        """Means, standard deviations and principal components, the largest last, as cuda-convnet2 orders them."""
        height, width, channels = self.total.shape
        pixels = self.images * height * width
        mean = self.total.sum((0, 1)) / pixels
        covariance = self.products / pixels - np.outer(mean, mean)
        variances, vectors = np.linalg.eigh(covariance)
        vectors *= np.sign(vectors[np.abs(vectors).argmax(0), range(channels)])  # of the two directions always one
        return Statistics(
            mean_image=self.total / self.images,
            mean=mean,
            std=np.sqrt(np.diag(covariance)),
            pca_std=np.sqrt(np.maximum(variances, 0)),
            pca_vectors=vectors,
        )


@dataclass
class Found:
    """What is known of a source after all of it was looked at.

    broken: of each image that cannot be decoded.  odd: paths by what is odd.  digests: uint8 [n, 16].
    """

    broken: list[DecodeError] = field(default_factory=list)
    odd: dict[str, list[str]] = field(default_factory=dict)
    digests: NDArray[np.uint8] = field(default_factory=lambda: np.zeros((0, DIGEST), np.uint8))
    sums: Sums | None = None


@dataclass(frozen=True)
class Task:
    """Some images, for one process; transform: what makes the image that is summed."""

    places: Sequence[Place]
    transform: Transform


def inspect(source: Source, transform: Transform, bar: Bar, workers: int = 0) -> Found:
    """Look at every image. transform: cuts the images that are summed, at the centre."""
    if isinstance(source, PixelSource):
        return _pixels(source, transform, bar)
    assert isinstance(source, EncodedSource)
    found, digests = Found(), bytearray()
    tasks = (
        Task([source.place(i) for i in range(first, min(first + PIECE, len(source)))], transform)
        for first in range(0, len(source), PIECE)
    )
    with bar(total=len(source), unit="image") as shown:
        for looks, sums in in_processes(_look_all, tasks, workers):
            for look in looks:
                digests += look.digest
                found.broken += [look.error] if look.error else []
                for kind in look.odd:
                    found.odd.setdefault(kind, []).append(look.path)
            if sums is not None:
                found.sums = found.sums + sums if found.sums else sums
            shown.update(len(looks))
    found.digests = np.frombuffer(bytes(digests), np.uint8).reshape(-1, DIGEST)
    return found


def _pixels(source: PixelSource, transform: Transform, bar: Bar) -> Found:
    digests, sums = [], None
    as_they_are = transform.keeps(source.images.shape[2], source.images.shape[1])
    with bar(total=len(source), unit="image") as shown:
        for images in _chunks(source.images):
            digests += [digest(image.tobytes()) for image in images]
            cut = images if as_they_are else np.stack([_cut(transform, transform.scaled(one, "")) for one in images])
            part = Sums.of(cut)
            sums = sums + part if sums else part
            shown.update(len(images))
    return Found(digests=np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST), sums=sums)


def _chunks(images: NDArray[np.uint8]) -> Iterator[NDArray[np.uint8]]:
    return (images[first : first + PIECE] for first in range(0, len(images), PIECE))


@dataclass
class Look:
    """One image."""

    path: str
    digest: bytes = bytes(DIGEST)
    odd: tuple[str, ...] = ()
    error: DecodeError | None = None


def _look_all(task: Task) -> tuple[list[Look], Sums | None]:
    looks, cut, transform = [], [], task.transform
    for place in task.places:
        look = Look(str(place))
        try:
            data = place.read()
            look.digest, look.odd = digest(data), oddities(data, place.name or place.path, transform)
            cut.append(_cut(transform, transform.load(data, str(place))))
        except DecodeError as error:
            look.error = error
        looks.append(look)
    return looks, Sums.of(np.stack(cut)) if cut else None


def _cut(transform: Transform, image: Pixels) -> Pixels:
    """The sample that evaluation would see."""
    out = np.empty((transform.height, transform.width, transform.channels), np.uint8)
    transform.cut(image, np.zeros((1, 4), np.uint32), out)
    return out


def oddities(data: bytes, name: str, transform: Transform) -> tuple[str, ...]:
    """What is unusual about an image, of all that is no reason to leave it out."""
    try:
        image = Image.open(io.BytesIO(data))
        turned = image.getexif().get(ORIENTATION, 1) not in (0, 1)
    except Exception:  # decoding tells what is wrong, or finds the pixels good in spite of damaged metadata
        return ()
    expected = NAMED.get(os.path.splitext(name)[1].lower(), image.format)
    kinds = {
        f"{image.format} files by another name": image.format != expected and image.format != "MPO",
        "CMYK, converted to RGB": image.mode in ("CMYK", "YCCK"),
        "16-bit, of which the high byte is used": image.mode.startswith("I"),
        "grey among colours": transform.channels == 3 and image.mode in ("1", "L", "LA"),
        "with an EXIF tag that would turn them": turned and not transform.exif_orientation,
        "smaller than the network's input": transform.resize is None
        and (image.height < transform.height or image.width < transform.width),
    }
    return tuple(kind for kind, holds in kinds.items() if holds)


def digest_keys(digests: NDArray[np.uint8]) -> NDArray[Any]:
    """Digests [n, 16] as an array [n] that can be sorted and compared."""
    return np.ascontiguousarray(digests).view(np.dtype((np.void, DIGEST))).reshape(-1)
