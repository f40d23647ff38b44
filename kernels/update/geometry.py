"""Geometries of the updates."""

from dataclasses import dataclass

BLOCK = 1024  # elements; a parameter begins at a multiple of it and owns whole blocks


@dataclass(frozen=True)
class Sgd:
    """Flat buffers of `blocks` blocks of 1024 elements, which belong to `parameters` parameters.

    clip: what the norm of all gradients is brought down to, where `ring` norms are given.
    """

    blocks: int
    parameters: int
    nesterov: bool = False
    clip: float = 0.0
    ring: int = 1


@dataclass(frozen=True)
class Collect:
    """Flat buffers as those of `Sgd`."""

    blocks: int
    parameters: int


@dataclass(frozen=True)
class Norm:
    """A flat buffer of `blocks` blocks; the norms of the last `ring` steps are kept."""

    blocks: int
    ring: int


@dataclass(frozen=True)
class Rescale:
    """A parameter's weights: of `rows` output units with `columns` weights each.

    parameter: its row in the table of rates. low, high: bounds of the norm of a unit, infinity for none.
    centered: the norm is that of the deviations from the mean, divided by `columns`.
    """

    rows: int
    columns: int
    parameter: int
    low: float
    high: float
    centered: bool = False


@dataclass(frozen=True)
class Average:
    """Flat buffers of `blocks` blocks. weight: of the new values, 1 - decay; with `warmup` at first larger."""

    blocks: int
    weight: float
    warmup: bool


@dataclass(frozen=True)
class Magnitude:
    """`parameters` spans of the flat buffers."""

    parameters: int
