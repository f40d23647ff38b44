"""How a batch, and the rows of a divided layer, come to ranks: the one place that says so."""


def share(count: int, size: int, rank: int, unit: int = 1) -> tuple[int, int]:
    """The samples, or rows, [begin, end) of `count` that `rank` of `size` ranks has: neighbours, in order.

    unit: so many neighbours, counted from the first sample, come to the same rank. All shares are equal but those of
    the last ranks, which are short or empty where `count` is no multiple of size * unit. So the place of a rank's first
    sample is rank * longest(count, size, unit), and equal shares laid one behind the other are the batch, with nothing
    between.
    """
    most = longest(count, size, unit)
    return min(rank * most, count), min((rank + 1) * most, count)


def longest(count: int, size: int, unit: int = 1) -> int:
    """Samples of the longest share, that of rank 0."""
    return min(-(-count // (size * unit)) * unit, count)
