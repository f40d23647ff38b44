"""The exchange on GPUs: transfers beside the computation, plain and captured, on one GPU and on two."""

import itertools

import numpy as np
import pytest

from convnet.parallel.communicator import Host
from convnet.parallel.nccl import Nccl
from tests.parallel import gpus
from tests.parallel.curves import OPTIONS, advance, bits, curve, engine, state

SIZE = 2


class Echo(Host):
    """One of two ranks of which the other has nothing but zeros; on hosts."""

    def __init__(self):
        super().__init__(0, SIZE)

    def gather(self, part):
        return [part, np.zeros_like(part)]

    def all_reduce(self, source, target, function="sum"):
        target[...] = source


class Lonely(Nccl):
    """The same on a GPU: NCCL knows of one rank, the network believes in two."""

    def __init__(self, backend):
        super().__init__(0, 1, backend, lambda data: data)
        assert self._comm.size() == 1
        self.size = SIZE


def half(made, steps):
    """Train on the samples of rank 0."""
    return state(advance(made, 0, steps))


@pytest.mark.gpu
@pytest.mark.parametrize("options", ["plain", "clip", "ema", "accumulate", "bf16"])
def test_a_captured_exchange_gives_the_bits_of_a_plain_one(cuda, options):
    """The other stream becomes a branch of the graph, and joins it again."""
    found = [
        half(engine(Lonely(cuda), "small", options, cuda, dtype=np.float32, capture=capture), 9)
        for capture in (False, True, True)
    ]
    assert all(bits(held) == bits(found[0]) for held in found)
    host = half(engine(Echo(), "small", options, dtype=np.float32), 9)
    for name, array in host["weights"].items():
        tolerance = 2e-2 if options == "bf16" else 2e-3
        np.testing.assert_allclose(found[0]["weights"][name], array, rtol=tolerance, atol=tolerance / 100)


@pytest.mark.gpu
def test_batch_norm_over_all_ranks_is_captured(cuda):
    found = [half(engine(Lonely(cuda), "tiny", "plain", cuda, dtype=np.float32, capture=c), 9) for c in (False, True)]
    assert bits(found[0]) == bits(found[1])
    host = half(engine(Echo(), "tiny", dtype=np.float32), 9)
    for name, array in host["weights"].items():
        np.testing.assert_allclose(found[0]["weights"][name], array, rtol=2e-3, atol=1e-4)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint16"])
def test_collectives(dtype):
    for rank, found in enumerate(gpus.together(SIZE, gpus.collectives, dtype)):
        for kind, array in gpus.expected(SIZE, rank, dtype).items():
            np.testing.assert_array_equal(found[kind], array, err_msg=f"{kind} at rank {rank}")


@pytest.mark.multi_gpu
@pytest.mark.parametrize(
    "network, options",
    [*(("tiny", options) for options in OPTIONS if "accumulate" not in options), ("small", "sharded accumulate")],
)
def test_two_gpus_train_as_one_host(network, options):
    """Plain and captured; the short batches of each epoch are a program of their own."""
    runs = [gpus.together(SIZE, gpus.train, network, options, 14, capture) for capture in (False, True)]
    assert all(rank[2] == runs[0][0][2] for run in runs for rank in run)
    history, held = curve(1, 14, network, "plain" if "bf16" in options else options, gpus.EPOCH, dtype=np.float32)[0]
    losses = sum(rank[0] for rank in runs[0])[0]
    np.testing.assert_allclose(losses, history[0], rtol=3e-2 if "bf16" in options else 2e-3)
    if "bf16" not in options:
        for name, array in held["weights"].items():
            np.testing.assert_allclose(runs[0][0][1]["weights"][name], array, rtol=5e-3, atol=1e-3)


@pytest.mark.multi_gpu
@pytest.mark.parametrize("options", ["plain", "sharded bf16"])
def test_the_arena_of_one_rank_may_grow(options):
    """What both replay is not bound anew: a transfer is captured by all ranks or by none."""
    steady = gpus.together(SIZE, gpus.train, "tiny", options, 14, True)
    found = gpus.together(SIZE, gpus.train, "tiny", options, 14, True, 9)
    for a, b in itertools.product(steady, found):
        assert a[2] == b[2]
