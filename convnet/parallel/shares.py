"""How a batch is divided among ranks: the one place that says so."""


def share(count: int, size: int, rank: int) -> tuple[int, int]:
    """The samples [begin, end) of a batch of `count` that `rank` of `size` ranks has: neighbours, in order.

    All shares are equal but those of the last ranks, which are short or empty where `count` is no multiple of `size`.
    So the place of a rank's first sample is rank * ceil(count / size), and equal shares laid one behind the other are
    the batch, with nothing between.
    """
    most = longest(count, size)
    return min(rank * most, count), min((rank + 1) * most, count)


def longest(count: int, size: int) -> int:
    """Samples of the longest share, that of rank 0."""
    return -(-count // size)
