"""Data parallelism: any number of ranks trains as one does, and all of them hold the same bits."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convnet.device import Planner
from convnet.graph.engine import Engine
from convnet.graph.executor import Executor
from convnet.graph.plan import plan_program
from convnet.graph.update import Rule
from convnet.parallel import data
from convnet.parallel.collectives import Collective
from convnet.parallel.communicator import Silent
from convnet.parallel.data import SMALL, Exchange, buckets
from convnet.parallel.shares import share
from kernels.update import BLOCK
from layers.options import ConfigError
from tests.convnet.networks import batch, rates, small
from tests.convnet.test_plan import check
from tests.parallel.curves import EPOCH, NETWORKS, OPTIONS, advance, alone, bits, curve, cut, engine, state, table, tiny
from tests.parallel.threads import together

EXACT = [name for name in OPTIONS if "bf16" not in name]


@pytest.fixture(autouse=True)
def several_buckets(monkeypatch):
    """These networks are small: nearly every parameter is a bucket of its own."""
    monkeypatch.setattr(data, "SMALL", 1)


def same(found, expected, tolerance):
    """The states of ranks against that of one rank, each array by its own magnitude."""
    for kind, arrays in expected.items():
        assert found[kind].keys() == arrays.keys()
        for name, array in arrays.items():
            atol = tolerance * max(np.abs(array).max(), 1e-2)  # a bias before batch norm has a gradient of 0
            np.testing.assert_allclose(found[kind][name], array, rtol=0, atol=atol, err_msg=f"{kind} {name}")


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("options", EXACT)
def test_ranks_train_as_one(options, size):
    """Of 6 samples four ranks leave one without any, of 5 as well; gradients are the same to rounding."""
    history, expected = alone(12, "tiny", options)
    if "accumulate" in options:  # micro-batches are other samples, over which batch norm would be another
        history, expected = alone(12, "small", options)
    found = curve(size, 12, "small" if "accumulate" in options else "tiny", options)
    np.testing.assert_allclose(sum(sums for sums, _ in found), history, rtol=1e-12)
    for _, held in found:
        same(held, expected, 1e-12)
    assert all(bits(held) == bits(found[0][1]) for _, held in found)


@pytest.mark.parametrize("network", [name for name in NETWORKS if name != "tiny"])
@pytest.mark.parametrize("options", ["plain", "sharded"])
def test_other_networks(network, options):
    history, expected = alone(9, network, options)
    found = curve(3, 9, network, options)
    np.testing.assert_allclose(sum(sums for sums, _ in found), history, rtol=1e-12)
    for _, held in found:
        same(held, expected, 1e-12)
        assert bits(held) == bits(found[0][1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "size, dtype, soon, late", [*((size, np.float64, 1e-12, 1e-9) for size in (2, 3, 4)), (2, np.float32, 1e-4, 5e-2)]
)
def test_two_hundred_steps(size, dtype, soon, late):
    """Training amplifies the rounding: `soon` is what the losses of the first 50 steps may differ by."""
    alone = curve(1, 200, dtype=dtype)[0][0][0] / np.resize(EPOCH, 200)
    losses = sum(sums for sums, _ in curve(size, 200, dtype=dtype))[0] / np.resize(EPOCH, 200)
    np.testing.assert_allclose(losses[:50], alone[:50], rtol=0, atol=soon)
    np.testing.assert_allclose(losses, alone, rtol=0, atol=late)
    assert losses[-20:].mean() < 0.7 * losses[:20].mean()


@pytest.mark.parametrize("options", ["bf16", "sharded bf16"])
def test_half_as_many_bytes_are_nearly_as_good(options):
    history, expected = alone(12)
    found = curve(3, 12, "tiny", options)
    losses = sum(sums for sums, _ in found)[0]
    np.testing.assert_allclose(losses, history[0], rtol=0.02)
    assert not np.allclose(losses, history[0], rtol=1e-6)
    for _, held in found:
        same({"weights": held["weights"]}, {"weights": expected["weights"]}, 0.05)
        assert bits(held) == bits(found[0][1])


@pytest.mark.parametrize("size, kinds", [(8, ["train"]), (2, ["first", "more", "apply"])])
def test_what_is_planned_is_what_runs(size, kinds):
    """Of 8 samples, in two parts, each of 8 ranks has one alone: no rank has a second part."""
    made = engine(Silent(size - 1, size), batch_size=8, accumulate=2)
    planned = [key[:3] for key in made.plans if key[0] not in ("measure", "eval")]
    assert planned == made.programs(8) and [kind for kind, *_ in planned] == kinds
    advance(made, 0, 2, epoch=(8,))
    assert [key[:3] for key in made._executors] == planned and len(made.plans) == len(planned) + 2


@pytest.mark.parametrize("total", [1, 2, 3, 5])
def test_a_batch_smaller_than_the_ranks(total):
    """Also the first batch there is, when nothing has been recorded or bound before."""

    def train(ranks):
        made = engine(ranks)
        part = slice(*share(total, ranks.size, ranks.rank))
        whole = batch(total, made.network, 9)
        samples = {name: array[part] for name, array in whole.items()}
        made.train(**samples, step=0, rates=rates(made), total=total)
        return made.history(0, 1), state(made)

    (history, expected), *_ = together(1, train)
    found = together(4, train)
    np.testing.assert_allclose(sum(sums for sums, _ in found), history, rtol=1e-12)
    for _, held in found:
        same(held, expected, 1e-12)
        assert bits(held) == bits(found[0][1])


def test_statistics_of_each_rank_are_averaged_by_samples():
    """Without `sync` each rank normalises by its own samples; the running statistics are what all have moved to."""

    def train(ranks):
        made = engine(ranks)
        total, start = 5, made.tensors()["bn1.running_mean"].copy()
        part = slice(*share(total, ranks.size, ranks.rank))
        samples = {name: array[part] for name, array in batch(total, made.network, 1).items()}
        made.train(**samples, step=0, rates=rates(made), total=total)
        return start, made.tensors()["bn1.running_mean"]

    def apart(rank):
        """What one rank alone would have moved them to."""
        return lambda ranks: train_alone(ranks, slice(*share(5, 3, rank)))

    def train_alone(ranks, part):
        made = engine(ranks)
        samples = {name: array[part] for name, array in batch(5, made.network, 1).items()}
        made.train(**samples, step=0, rates=rates(made))
        return made.tensors()["bn1.running_mean"]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(NETWORKS, "tiny", lambda: tiny(bn1={"type": "batch_norm"}))
        found = together(3, train)
        own = [together(1, apart(rank))[0] for rank in range(3)]
    expected = sum(n / 5 * mean for n, mean in zip((2, 2, 1), own, strict=True))
    for _, mean in found:
        np.testing.assert_allclose(mean, expected, rtol=1e-12)
    assert np.abs(own[0] - own[2]).max() > 1e-3


def test_one_bad_loss_stops_the_updates_of_all():
    """Only rank 1 sees it; no rank moves, and the loss of all together shows it."""

    def train(ranks):
        made = advance(engine(ranks), 0, 2)
        before = made.tensors()
        if ranks.rank == 1:
            made.parameters["fc2.bias"][...] = np.inf
        advance(made, 2, 3)
        after = made.tensors()
        moved = [name for name in made.parameters if name != "fc2.bias" and (after[name] != before[name]).any()]
        return moved, made.arrays["healthy"][0], made.history(2, 3)[0, 0], made.first_nonfinite(3, 6)

    first, second = together(2, train)
    assert first[:2] == second[:2] == ([], 0)
    assert np.isfinite(first[2]) and not np.isfinite(second[2])
    assert first[3] is None and second[3][0] == "fc2"


def test_a_run_goes_on_with_another_number_of_ranks():
    """From what any rank would have saved."""
    _, expected = alone(9, "slow", "ema")

    def begin(ranks):
        return state(advance(engine(ranks, "slow", "ema"), 0, 5))

    saved = together(3, begin)[2]

    def go_on(ranks):
        made = engine(ranks, "slow", "ema", exchange=cut(update="sharded"))
        made.load(
            saved["weights"], saved["momentum"], {key: saved[key] for key in saved if key in ("ema", "gradients")}
        )
        return state(advance(made, 5, 9))

    for size in (1, 2):
        for held in together(size, go_on):
            same(held, expected, 1e-12)


def test_magnitudes_of_a_sharded_update_are_those_of_all():
    expected = together(1, lambda ranks: advance(engine(ranks), 0, 2).magnitudes())[0]
    for found in together(3, lambda ranks: advance(engine(ranks, options="sharded"), 0, 2).magnitudes()):
        for name, both in expected.items():
            np.testing.assert_allclose(found[name], both, rtol=1e-12)


def test_ranks_exchange_the_same_things_in_the_same_order():
    """Also the one that has no samples."""

    def train(ranks):
        advance(engine(ranks), 0, 4)
        return ranks.calls

    first, *others = together(4, train)
    assert first and all(calls == first for calls in others)


def test_an_arena_that_grows_leaves_what_is_bound():
    """The other ranks replay it, and would wait for one that captures it again."""

    def train(ranks):
        made = advance(engine(ranks), 0, 4)
        old, arena = made.executor("train", 3, 6), made._arena
        if ranks.rank == 1:
            made.plan("eval", 40)
            data = batch(made.eval_batch, made.network)
            made.evaluate(data["pixels"], data["labels"])
            assert made._arena is not arena
        advance(made, 4, 8)
        assert made.executor("train", 3, 6) is old and old.arena is arena
        return state(made)

    for held in together(2, train):
        same(held, alone(8)[1], 1e-12)


def test_a_share_of_the_wrong_length():
    network = small()
    made = Engine(network, Planner(90), batch_size=6, communicator=Silent(1, 2))
    with pytest.raises(ValueError, match="rank 1: expected 3 of 6 samples, found 2"):
        made.train(**batch(2, network), step=0, rates=table(made, 0), total=6)


def test_a_sharded_update_cannot_be_clipped():
    options = {"rule": Rule(clip=1.0), "exchange": Exchange(update="sharded")}
    with pytest.raises(ConfigError, match=r"replicated with solver\.clip_norm"):
        Engine(small(), Planner(90), batch_size=6, communicator=Silent(0, 2), **options)


# The step list


def planned(options="plain", size=2, **more):
    settings = {"batch_size": 8, **OPTIONS["plain"], **OPTIONS[options], **more}
    made = Engine(tiny(), Planner(90), communicator=Silent(0, size), **settings)
    return made.plan("train", -(-settings["batch_size"] // size), settings["batch_size"])


def test_a_bucket_is_sent_as_soon_as_it_is_complete():
    steps = planned()[0].steps
    starts = [i for i, step in enumerate(steps) if step.op == Collective("all_reduce", "start")]
    for i in starts:
        value = steps[i].arguments["source"]
        if value.name == "gradients":
            before = [step for step in steps[:i] if not isinstance(step.op, Collective)]
            assert before[-1].phase == "backward" and any("dw" in n or "db" in n for n in before[-1].op.writes)
    first_wait = next(
        i for i, step in enumerate(steps) if step.op == Collective("all_reduce", "wait") and step.layer == "all"
    )
    of_gradients = [i for i in starts if steps[i].arguments["source"].name == "gradients"]
    assert len(of_gradients) > 3
    assert steps[of_gradients[0]].arguments["source"].begin > steps[of_gradients[-1]].arguments["source"].begin == 0
    backward = [i for i, step in enumerate(steps) if step.phase == "backward" and not isinstance(step.op, Collective)]
    assert of_gradients[0] < backward[-1] < first_wait


@pytest.mark.parametrize("options", ["plain", "bf16", "sharded bf16"])
@pytest.mark.parametrize("size", [2, 3, 16])
def test_nothing_is_overwritten_while_it_is_sent(options, size):
    """Of three ranks the others have as many samples; of sixteen, half have none."""
    check(planned(options, size)[1])


def test_a_transfer_that_nobody_waits_for():
    made = Engine(tiny(), Planner(90), batch_size=8, communicator=Silent(0, 2))
    recorded, _ = made.plan("train", 4, 8)
    i = next(i for i, step in enumerate(recorded.steps) if step.op == Collective("all_reduce", "wait"))
    del recorded.steps[i]
    plan = plan_program(recorded.steps, (), made.backend.choose)
    arena, arrays = np.zeros(plan.peak, np.uint8), {name: array.copy() for name, array in made.arrays.items()}
    with pytest.raises(ValueError, match="1 transfers are started and never waited for"):
        Executor(made.backend, plan, arena, arrays, capture=False, communicator=Silent(0, 2))


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 9000), st.booleans()), max_size=12),
    st.integers(1, 20_000),
    st.sampled_from([1, 2, 3, 8]),
)
def test_buckets(sizes, most, ranks):
    """Every span that is asked for is in buckets; these do not overlap, and come last first."""
    spans, begin = {}, 0
    for i, (size, asked) in enumerate(sizes):
        if asked:
            spans[str(i)] = begin, size
        begin += -(-size // BLOCK) * BLOCK
    grain = BLOCK * ranks
    found = buckets(spans, most, grain)
    assert all(low % grain == high % grain == 0 and low < high for low, high in found)
    assert all(a[0] >= b[1] for a, b in pairwise(found))
    assert all(any(low <= i < high for low, high in found) for b, size in spans.values() for i in (b, b + size - 1))


def test_the_buckets_of_alexnet(monkeypatch):
    """Large weights go alone, with the bias behind; convolutions go together; a frozen layer stays out."""
    fc = {"fc6": 37_748_736, "fc7": 16_777_216, "fc8": 4_096_000}
    sizes = {"conv": 2_334_080, **{f"{k}.{p}": n for k, m in fc.items() for p, n in (("weight", m), ("bias", 4096))}}
    spans, begin = {}, 0
    for name, size in sizes.items():
        spans[name] = begin, size
        begin += -(-size // BLOCK) * BLOCK
    monkeypatch.setattr(data, "SMALL", SMALL)
    found = buckets(spans, 25 * 2**18, BLOCK)
    assert [(high - low) // 2**18 for low, high in found] == [15, 64, 144, 8]
    without = buckets({name: span for name, span in spans.items() if not name.startswith("fc7")}, 25 * 2**18, BLOCK)
    assert [(high - low) // 2**18 for low, high in without] == [15, 144, 8]
    assert SMALL == 2**18
