"""Geometry of an elementwise operation."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Neuron:
    """A map of `channels` x `height` x `width` x `batch`; `kind` indexes reference.KINDS."""

    channels: int
    height: int
    width: int
    batch: int
    kind: int
