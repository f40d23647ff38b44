"""From the sums of results to the numbers that people read, and their names."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

TOP = re.compile(r"top(\d+)_error")


@dataclass(frozen=True)
class Results:
    """names: of the rows of all costs, such as "cost.loss". main: the cost whose results are those of the network.

    A lone cost's results are called "loss", "top1_accuracy" and so on. Of several costs, those of the main one are so,
    and all have a second name with that of the cost: "aux.loss".
    """

    names: Sequence[str]
    main: str

    @property
    def lone(self) -> bool:
        return self._costs == [self.main]

    def means(self, sums: Mapping[str, float], images: int, counts: Mapping[str, Any]) -> dict[str, Any]:
        """Means of `sums`, of an error the accuracy in 0..1; of counts, lists of each class's precision and recall.

        Means are NaN without images, shares None where there is nothing to divide by.
        """
        found: dict[str, Any] = {}
        for name in self.names:
            total = images - sums[name] if name.endswith("_error") else sums[name]
            found[_reported(name)] = total / (images or math.nan)
        for cost, table in counts.items():
            declared, present, both = np.array(table)
            found |= {f"{cost}.precision": _shares(both, declared), f"{cost}.recall": _shares(both, present)}
        plain = {_split(name)[1]: value for name, value in found.items() if _split(name)[0] == self.main}
        return plain if self.lone else plain | found

    def phrases(self, row: Mapping[str, Any], classes: int, width: int = 0) -> list[str]:
        """The results in `row`, each once: "loss 0.1234", "top-1 56.78%"; not of being among the first `classes`."""
        names = [*self.names, *(f"{cost}.{share}" for cost in self._costs for share in ("precision", "recall"))]
        found = []
        for cost, result in sorted(map(_split, names), key=lambda split: split[0] != self.main):
            key = ("" if cost == self.main else f"{cost}.") + _reported(result)
            top = TOP.fullmatch(result)
            if key in row and not (top and int(top[1]) > 1 and classes <= int(top[1])):
                found.append(_phrase(key, row[key], width))
        return found

    @property
    def _costs(self) -> list[str]:
        return list(dict.fromkeys(_split(name)[0] for name in self.names))


def _split(name: str) -> tuple[str, str]:
    """The cost and its result; there may be dots in the name of the cost."""
    cost, _, result = name.rpartition(".")
    return cost, result


def _reported(result: str) -> str:
    """An error is reported as an accuracy."""
    return re.sub("_error$", "_accuracy", result)


def _phrase(key: str, value: Any, width: int) -> str:
    if isinstance(value, list):
        value = np.mean([share for share in value if share is not None] or [np.nan])
    elif not key.endswith("_accuracy"):
        return f"{key} {value:.4f}"
    label = re.sub(r"top(\d+)$", r"top-\1", key.removesuffix("_accuracy"))
    return f"{label} {value:{width}.2%}"


def _shares(parts: np.ndarray, wholes: np.ndarray) -> list[float | None]:
    """parts / wholes of each class; None where there is nothing to divide by."""
    return [int(part) / int(whole) if whole else None for part, whole in zip(parts, wholes, strict=True)]
