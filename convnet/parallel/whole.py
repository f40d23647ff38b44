"""Parameters of which each rank holds some rows, made whole for checkpoints, and cut again."""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from convnet.parallel.communicator import Communicator
from convnet.parallel.placement import Placement

Arrays = Mapping[str, np.ndarray]


class Whole:
    """Between a rank's rows of parameters and all of them; arrays go by the names of parameters, others stay as they
    are. All ranks ask together, for the same names in the same order.
    """

    def __init__(self, placement: Placement, communicator: Communicator, backend: Any):
        self.placement, self.communicator, self.backend = placement, communicator, backend

    def cut(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """This rank's rows."""
        return {name: array[slice(*self._rows(name))] if self._cut(name) else array for name, array in arrays.items()}

    def join(self, arrays: Arrays) -> dict[str, np.ndarray]:
        """All rows, on every rank."""
        return {name: self._joined(name, array) if self._cut(name) else array for name, array in arrays.items()}

    def means(self, found: np.ndarray) -> np.ndarray:
        """Of means over each rank's rows those over all; found: [parameters, any], in their order."""
        names = list(self.placement.network.params)
        shares = [self._part(name) for name in names]
        weighted = np.where(np.array(shares)[:, None] > 0, found * np.array(shares)[:, None], 0)
        total = np.ascontiguousarray(weighted, np.float64)
        self.communicator.move("all_reduce", array := self._upload(total.reshape(-1)), array)
        added = self.backend.download(array).reshape(total.shape)
        return np.where([[self._cut(name)] for name in names], added, found)

    def _cut(self, name: str) -> bool:
        return name in self.placement.network.params and not self.placement.whole(name)

    def _rows(self, name: str, rank: int | None = None) -> tuple[int, int]:
        return self.placement.rows(name, rank)

    def _part(self, name: str) -> float:
        """Which part of a parameter this rank holds."""
        begin, end = self._rows(name)
        return (end - begin) / self.placement.network.params[name].shape[0]

    def _joined(self, name: str, array: np.ndarray) -> np.ndarray:
        shape, size = self.placement.network.params[name].shape, self.placement.size
        row, rows = prod(shape[1:]), [self._rows(name, rank) for rank in range(size)]
        owners = [rank for rank, (begin, end) in enumerate(rows) if end > begin]
        if len(owners) == 1:
            target = self.backend.zeros(prod(shape), array.dtype)
            mine = owners[0] == self.placement.rank
            self.communicator.move(
                "broadcast", self._upload(array.reshape(-1)) if mine else None, target, root=owners[0]
            )
            return np.asarray(self.backend.download(target)).reshape(shape)
        most = max(end - begin for begin, end in rows) * row
        source = np.zeros(most, array.dtype)
        source[: array.size] = array.reshape(-1)
        target = self.backend.zeros(most * size, array.dtype)
        self.communicator.move("all_gather", self._upload(source), target)
        return np.asarray(self.backend.download(target))[: prod(shape)].reshape(shape)

    def _upload(self, source: np.ndarray) -> Any:
        target = self.backend.zeros(source.size, source.dtype)
        self.backend.upload(target, source)
        return target
