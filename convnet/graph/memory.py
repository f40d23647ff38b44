"""The memory planner: blocks with lifetimes to offsets in one arena. Pure; knows sizes and step numbers only."""

from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 256  # bytes: what CUDA's own allocator gives, enough for any vector access


@dataclass(frozen=True)
class Block:
    """`size` bytes that hold something from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int

    def meets(self, other: "Block") -> bool:
        """Whether both hold something at one step."""
        return self.first <= other.last and other.first <= self.last


def place(blocks: Sequence[Block]) -> tuple[list[int], int]:
    """Offsets (bytes) such that blocks alive at one step never overlap, and the arena size they need.

    Greedy by size (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference"): large blocks
    first, each at the lowest offset that is free over its whole life.
    """
    offsets = [0] * len(blocks)
    placed: list[int] = []
    for i in sorted(range(len(blocks)), key=lambda i: (-blocks[i].size, blocks[i].first, i)):
        taken = sorted((offsets[j], offsets[j] + blocks[j].size) for j in placed if blocks[i].meets(blocks[j]))
        offsets[i] = _lowest_gap(taken, blocks[i].size)
        placed.append(i)
    return offsets, max((offset + block.size for offset, block in zip(offsets, blocks, strict=True)), default=0)


def _lowest_gap(taken: list[tuple[int, int]], size: int) -> int:
    """The lowest aligned offset where `size` bytes fit between the sorted (begin, end) ranges."""
    offset = 0
    for begin, end in taken:
        if offset + size <= begin:
            break
        offset = max(offset, -(-end // ALIGNMENT) * ALIGNMENT)
    return offset
