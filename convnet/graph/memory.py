"""The memory planner: blocks with lifetimes to offsets in one arena. Pure; knows sizes and step numbers only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ALIGNMENT = 256  # bytes: what CUDA's own allocator gives, enough for any vector access


@dataclass(frozen=True)
class Block:
    """`size` bytes that hold something from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


def place(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Offsets (bytes) such that blocks alive at one step never overlap, and the arena size they need.

    Greedy by size (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference"): large blocks
    first, each at the lowest offset that is free over its whole life.
    """
    offsets = [0] * len(blocks)
    order = sorted(range(len(blocks)), key=lambda i: (-blocks[i].size, blocks[i].first, i))
    placed = np.zeros((4, len(blocks)), np.int64)  # first, last, begin, end of each
    for count, block in enumerate(blocks[i] for i in order):
        if not block.size:  # nor have those that follow
            break
        first, last, begin, end = placed[:, :count]
        meets = (first <= block.last) & (block.first <= last)
        offset = offsets[order[count]] = _lowest_gap(begin[meets], end[meets], block.size)
        placed[:, count] = block.first, block.last, offset, offset + block.size
    return offsets, max((offset + block.size for offset, block in zip(offsets, blocks, strict=True)), default=0)


def _lowest_gap(begin: np.ndarray, end: np.ndarray, size: int) -> int:
    """The lowest aligned offset where `size` bytes fit between the ranges from `begin` to `end`."""
    order = np.argsort(begin)
    free = np.zeros(len(order) + 1, np.int64)  # up to each range, and behind the last
    np.maximum.accumulate(-(-end[order] // ALIGNMENT) * ALIGNMENT, out=free[1:])
    fits = np.append(free[:-1] + size <= begin[order], True)
    return int(free[fits.argmax()])
