"""Geometry of a fully connected layer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fc:
    """`outputs` weighted sums of `features` inputs, for each of `batch` samples."""

    features: int
    outputs: int
    batch: int
