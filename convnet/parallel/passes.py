"""The passes in which the ranks of a hybrid go through a batch together, by the schemes of Krizhevsky 2014.

"One weird trick for parallelizing convolutional neural networks", section 4: of `size` ranks each has convolved its
share of a batch, and layers divided by their outputs need all of it.

    A   one pass: every rank hands its whole share to all
    B   a pass for each rank: it hands its share to all
    C   as many passes: every rank hands an equal part of its share to all

B and C need less memory, and while one pass is computed the samples of the next are on their way. C keeps all links
busy at once. Pure.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from convnet.parallel.shares import share

SCHEMES = ("A", "B", "C")


@dataclass(frozen=True)
class Piece:
    """`count` samples of a rank's own: from `own` on in its share, from `column` on in a pass."""

    own: int
    column: int
    count: int


@dataclass(frozen=True)
class Pass:
    """`count` samples: of each rank's share those from `begin` on, `run` of them or what is left, rank by rank.

    pieces: those of each rank. root: the only rank that has any; None where all hand over `run` samples, of which those
    behind the end of the batch are left out.
    """

    index: int
    count: int
    begin: int
    run: int
    pieces: tuple[Piece, ...]
    root: int | None = None

    def first(self, distance: int) -> int:
        """The place of the first sample in a batch where the shares of ranks begin so many places apart.

        The n-th sample is at this + n // run * distance + n % run.
        """
        return (self.root or 0) * distance + self.begin


def passes(scheme: str, count: int, size: int, unit: int = 1) -> list[Pass]:
    """Those over a batch of `count` samples, shared among `size` ranks, `unit` neighbours together (shares.py)."""
    shares = [share(count, size, rank, unit) for rank in range(size)]
    return list(_by_rank(shares) if scheme == "B" else _by_part(shares, 1 if scheme == "A" else size))


def _by_rank(shares: list[tuple[int, int]]) -> Iterator[Pass]:
    for root, (begin, end) in enumerate(shares):
        if count := end - begin:
            pieces = tuple(Piece(0, 0, count if rank == root else 0) for rank in range(len(shares)))
            yield Pass(root, count, 0, count, pieces, root)


def _by_part(shares: list[tuple[int, int]], parts: int) -> Iterator[Pass]:
    longest = shares[0][1]
    width = -(-longest // parts)
    for index, own in enumerate(range(0, longest, width)):
        run = min(width, longest - own)
        counts = [max(0, min(end - begin - own, run)) for begin, end in shares]
        pieces = tuple(Piece(own, rank * run, count) for rank, count in enumerate(counts))
        yield Pass(index, sum(counts), own, run, pieces)
