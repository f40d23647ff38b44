"""Geometry of an elementwise operation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Neuron:
    """A map of `channels` x `height` x `width` x `batch`. kind: index into reference.KINDS; a, b: its parameters."""

    channels: int
    height: int
    width: int
    batch: int
    kind: int
    a: float = 1.0
    b: float = 1.0
