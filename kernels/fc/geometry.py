"""Geometry of a fully connected layer."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Fc:
    """`outputs` weighted sums of `features` inputs, for each of `batch` samples.

    Features and outputs are cut in `parts` equal parts, and each part of the outputs sums one part of the features:
    w [outputs, features/parts].
    """

    features: int
    outputs: int
    batch: int
    parts: int = 1

    @property
    def part_features(self) -> int:
        return self.features // self.parts

    @property
    def part_outputs(self) -> int:
        return self.outputs // self.parts
