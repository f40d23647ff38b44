"""Ranks whose images are augmented, and mixed in pairs, train as one does."""

import functools

import numpy as np
import pytest

from convnet.data import Pipeline, PixelSource, Transform
from convnet.data.augment import Augment, Erasing
from convnet.data.jitter import Jitter
from convnet.graph.engine import Engine
from convnet.graph.feed import Feed
from convnet.parallel.data import Exchange
from convnet.parallel.division import Division
from convnet.parallel.placement import Placement, homes
from convnet.parallel.shares import longest, share
from kernels.backend import NumPy
from tests.parallel.curves import state, table, tiny
from tests.parallel.threads import together

PCA = ((9.0, 2.0, 3.0), (0.0, 5.0, 1.0), (2.0, 0.0, 7.0))
AUGMENT = Augment((3, 5, 6), Jitter(0.4, 0.4, 0.4, 0.1), 0.1, True, PCA, Erasing(0.5), mixup=0.4, cutmix=1.0)
TRANSFORM = Transform(3, 5, 6, pad=1, crop="random", mirror=True)
SAMPLES, BATCH, EPOCHS = 17, 6, 3  # the last batch is short and of an odd number


def source():
    """Images that are cut, of which two have no label: these, and those beside them, are not mixed."""
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, SAMPLES).astype(np.int32)
    labels[[3, 11]] = -1
    return PixelSource(rng.integers(0, 256, (SAMPLES, 7, 8, 3), np.uint8), labels, "abcd", "images")


def network(smoothing=0.1):
    """With dropout, and statistics of all ranks."""
    cost = {"type": "logreg", "inputs": ["fc2", "labels"], "topk": 2, "smoothing": smoothing}
    return tiny(data={"type": "data", "size": [5, 6]}, cost=cost)


def trained(ranks, scheme="", net=network, **options):
    """Sums of results of this rank at each step, and its state after the last."""
    made, division = net(), None
    if scheme:
        placement = Placement(made, homes(made, ranks.size, sharded=True), ranks.rank, ranks.size)
        division = Division(placement, scheme)
    settings = {"mean": 127.5, "std": 60.0, "seed": 3, "dtype": np.float64, "communicator": ranks, **options}
    feeds = Feed(extras=AUGMENT.names), Feed()
    engine = Engine(made, NumPy(), batch_size=BATCH, division=division, feeds=feeds, **settings)
    engine.initialize()
    flow = {"seed": 5, "train": True, "augment": AUGMENT, "rank": ranks.rank, "world": ranks.size, "threads": 1}
    step, seen = 0, []
    with Pipeline(source(), TRANSFORM, BATCH, **flow) as pipeline:
        for epoch in range(EPOCHS):
            for batch in pipeline.batches(epoch):
                engine.train(**batch.inputs, step=step, rates=table(engine, step), total=batch.total)
                seen += batch.extras["second"].tolist()
                step += 1
    return engine.history(0, step), state(engine), seen


@functools.cache
def alone(net=network):
    (found,) = together(1, lambda ranks: trained(ranks, net=net))
    assert sum(label >= 0 for label in found[2]) > SAMPLES  # most samples are mixed
    return found


def check(found, expected, tolerance):
    history, held, seen = expected
    np.testing.assert_allclose(sum(sums for sums, *_ in found), history, rtol=tolerance)
    assert sorted(label for *_, own in found for label in own) == sorted(seen)
    for _, own, _ in found:
        assert own.keys() == held.keys()
        for kind, arrays in held.items():
            for name, array in arrays.items():
                np.testing.assert_allclose(own[kind][name], array, rtol=tolerance, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("options", [{}, {"accumulate": 3}, {"exchange": Exchange("sharded", bucket=0.001)}])
def test_ranks_with_shares_of_a_batch(size, options):
    """Of four ranks the last has never a sample, since pairs stay together."""
    if "accumulate" in options:  # statistics are of a part of the batch
        net = functools.partial(tiny, data={"type": "data", "size": [5, 6]}, bn1={"type": "pass"})
        check(together(size, lambda ranks: trained(ranks, net=net, **options)), alone(net), 1e-9)
    else:
        check(together(size, lambda ranks: trained(ranks, **options)), alone(), 1e-9)


@pytest.mark.parametrize("scheme, size", [("A", 2), ("A", 4), ("B", 3), ("C", 2), ("C", 4)])
def test_layers_divided_among_ranks(scheme, size):
    """The costs of all ranks' samples see the second labels and the shares of all."""
    check(together(size, lambda ranks: trained(ranks, scheme)), alone(), 1e-9)


def test_targets_of_another_cost_are_mixed_too():
    """A cost whose targets are made of labels, behind a divided layer."""

    def net():
        fc2 = {"type": "fc", "outputs": 4, "neuron": "logistic"}
        return tiny(data={"type": "data", "size": [5, 6]}, fc2=fc2, cost={"type": "bce", "inputs": ["fc2", "labels"]})

    check(together(3, lambda ranks: trained(ranks, "B", net)), alone(net), 1e-9)


@pytest.mark.parametrize("size", range(1, 6))
def test_shares_keep_pairs_together(size):
    for count in range(1, 20):
        parts = [share(count, size, rank, 2) for rank in range(size)]
        assert [i for part in parts for i in range(*part)] == list(range(count))
        assert all(begin % 2 == 0 or begin == count for begin, _ in parts)
        assert all(begin == min(rank * longest(count, size, 2), count) for rank, (begin, _) in enumerate(parts))
        assert longest(count, size, 2) - longest(count, size) in (0, 1)
