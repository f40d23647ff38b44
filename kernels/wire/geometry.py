"""Geometries of what goes before and after an exchange."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Halve:
    """`blocks` blocks of numbers, and of their bfloat16."""

    blocks: int


@dataclass(frozen=True)
class Scale:
    """`blocks` blocks of numbers that are multiplied by `factor`."""

    blocks: int
    factor: float


@dataclass(frozen=True)
class Clear:
    """`size` elements of any type."""

    size: int
