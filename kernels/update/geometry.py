"""Geometries of the updates."""

from dataclasses import dataclass

BLOCK = 1024  # elements; a parameter begins at a multiple of it and owns whole blocks


@dataclass(frozen=True)
class Sgd:
    """Flat buffers of `blocks` blocks of 1024 elements, which belong to `parameters` parameters."""

    blocks: int
    parameters: int


@dataclass(frozen=True)
class Magnitude:
    """`parameters` spans of the flat buffers."""

    parameters: int
