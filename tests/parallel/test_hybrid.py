"""Hybrids: whatever is divided among ranks, they compute what one computes, and keep what one keeps."""

import numpy as np
import pytest

from convnet.device import Planner
from convnet.graph.engine import Engine
from convnet.graph.update import Rule
from convnet.parallel.communicator import Silent
from convnet.parallel.data import Exchange
from convnet.parallel.division import Division
from convnet.parallel.model import starts
from convnet.parallel.placement import Placement, homes
from kernels.backend import NumPy
from layers.options import ConfigError
from tests.convnet.networks import batch, rates, wire
from tests.parallel import gpus
from tests.parallel.threads import together

STEPS = 200
OPTIONS = {"mean": 127.5, "std": 60.0, "seed": 3, "dtype": np.float64}


def network(**layers):
    """One convolution, then fully connected layers with all that may stand between them; 21 outputs divide by 3."""
    given = {
        "data": {"type": "data", "size": [6, 5]},
        "conv": {"type": "conv", "filters": 4, "size": 3, "pad": 1},
        "relu": {"type": "neuron", "kind": "relu"},
        "pool": {"type": "pool", "mode": "max", "size": 2, "stride": 2},
        "drop": {"type": "dropout", "keep": 0.8},
        "fc1": {"type": "fc", "outputs": 21, "inputs": ["drop"]},
        "tanh1": {"type": "neuron", "kind": "tanh", "inputs": ["fc1"]},
        "drop1": {"type": "dropout", "keep": 0.5, "inputs": ["tanh1"]},
        "fc2": {"type": "fc", "outputs": 10},
        "logistic2": {"type": "neuron", "kind": "logistic"},
        "drop2": {"type": "dropout", "keep": 0.7},
        "fc3": {"type": "fc", "outputs": 5},
        "cost": {"type": "logreg", "inputs": ["fc3", "labels"], "topk": 2},
    }
    for name, layer in layers.items():  # in the place of one of that name, or behind what it reads
        if name not in given:
            rest = list(given.items())
            behind = [*layer["inputs"], layer.get("share")]
            place = 1 + max(i for i, above in enumerate(given) if above in behind)
            given = dict([*rest[:place], (name, layer), *rest[place:]])
    return wire(**{**given, **layers})


def divided(network, communicator, scheme, *, sharded=True):
    """The division of a rank."""
    found = homes(network, communicator.size, sharded=sharded)
    return Division(Placement(network, found, communicator.rank, communicator.size), scheme)


def trained(network, *, counts, steps=STEPS, communicator=None, division=None, backend=None, lr=0.02, **options):
    """An engine after steps on batches of so many samples, in turn, with what it has reported of each, of its own."""
    options = {**OPTIONS, "batch_size": counts[0], **options}
    engine = Engine(network, backend or NumPy(), communicator=communicator, division=division, **options)
    engine.initialize()
    go_on(engine, 0, steps, communicator, counts=counts, lr=lr)
    return engine, engine.history(0, steps)


def go_on(engine, first, steps, communicator=None, *, counts=(12,), lr=0.02):
    """Steps on a rank's share of batches of so many samples."""
    size, rank = (communicator.size, communicator.rank) if communicator else (1, 0)
    for step in range(first, first + steps):
        total = counts[step % len(counts)]
        most = -(-total // size)
        own = {name: a[rank * most : (rank + 1) * most] for name, a in batch(total, engine.network, step).items()}
        engine.train(**own, step=step, rates=schedule(engine, step, lr), total=total)


def schedule(engine, step, lr):
    """As rates, and where layers wait: they move at every third step, by the mean gradient of three."""
    table = rates(engine, lr=lr)
    for i, name in enumerate(engine.parameters):
        if name in engine.pending:
            table[i, 3] = 1 / 3 if step % 3 == 2 else 0
    return table


def state(engine):
    """All that a checkpoint holds."""
    extras = [arrays for _, arrays in sorted(engine.extras().items())]
    return [engine.tensors(), engine.momentum(), *extras]


def check(network, size, scheme, *, sharded=True, **options):
    """Ranks against one: the same losses at every step, the same checkpoint at the end."""

    def rank(communicator):
        division = divided(network, communicator, scheme, sharded=sharded)
        engine, history = trained(network, communicator=communicator, division=division, **options)
        return history, state(engine)

    engine, history = trained(network, **options)
    expected = state(engine)
    found = together(size, rank)
    np.testing.assert_allclose(sum(part for part, _ in found), history, rtol=1e-12)
    for _, arrays in found:
        for own, one in zip(arrays, expected, strict=True):
            assert own.keys() == one.keys()
            for name in one:
                np.testing.assert_allclose(own[name], one[name], rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("scheme, size", [("A", 3), ("B", 2), ("C", 4)])
def test_ranks_train_as_one(scheme, size):
    check(network(), size, scheme, counts=(12, 12, 7))


FEW = {"steps": 9, "counts": (12, 5, 2)}  # the last batch leaves ranks without a sample
SCHEMES = pytest.mark.parametrize("scheme", ["A", "B", "C"])


@SCHEMES
@pytest.mark.parametrize("size", [2, 3, 4])
def test_any_number_of_samples(scheme, size):
    check(network(), size, scheme, **FEW)


@SCHEMES
def test_micro_batches(scheme):
    """Of 13 samples three ranks have 5, 5 and 3, in parts of 2, 2 and 1: 2, 2, 2; 2, 2, 1; 1, 1, 0."""
    check(network(), 3, scheme, steps=8, counts=(13, 13, 8), batch_size=13, accumulate=1)
    check(network(), 3, scheme, steps=8, counts=(12, 7, 5), batch_size=12, accumulate=3)


HEADS = {
    "an output for each of few ranks": {"fc2": {"type": "fc", "outputs": 3}},
    "batch norm": {"logistic2": {"type": "batch_norm"}},
    "batch norm over all ranks": {
        "relu": {"type": "batch_norm", "sync": True},
        "logistic2": {"type": "batch_norm", "sync": True},
    },
    "bounded weights": {"fc2": {"type": "fc", "outputs": 10, "solver": {"wball": 0.9}}},
    "waiting gradients": {"fc1": {"type": "fc", "outputs": 21, "inputs": ["drop"], "solver": {"update_every": 3}}},
    "no bias": {"fc1": {"type": "fc", "outputs": 21, "inputs": ["drop"], "bias": False}},
    "a sum of divided maps": {
        "fc1b": {"type": "fc", "outputs": 10, "inputs": ["drop1"]},
        "logistic2": {"type": "eltsum", "inputs": ["fc1b", "fc2"]},
    },
    "shared weights": {
        "fc1b": {"type": "fc", "outputs": 21, "inputs": ["drop"], "share": "fc1"},
        "drop1": {"type": "eltsum", "inputs": ["fc1b", "tanh1"]},
    },
    "a second cost before": {
        "aux": {"type": "conv", "filters": 5, "size": [3, 2], "inputs": ["drop"]},
        "aux_cost": {"type": "logreg", "inputs": ["aux", "labels"], "coeff": 0.3},
    },
    "softmax": {
        "probabilities": {"type": "softmax", "inputs": ["fc3"]},
        "cost": {"type": "crossent", "inputs": ["probabilities", "labels"]},
    },
    "one output": {
        "fc3": {"type": "fc", "outputs": 1},
        "cost": {"type": "bce", "inputs": ["fc3", "labels"]},
    },
    "a map of samples beside a divided one": {
        "conv2": {"type": "conv", "filters": 6, "size": [3, 2], "inputs": ["drop"]},
        "both": {"type": "concat", "inputs": ["conv2", "drop1"]},
        "fc2": {"type": "fc", "outputs": 10, "inputs": ["both"]},
    },
    "a convolution behind": {
        "conv2": {"type": "conv", "filters": 6, "size": 1, "inputs": ["drop1"]},
        "fc2": {"type": "fc", "outputs": 10, "inputs": ["conv2"]},
    },
    "a cost without labels": {"more": {"type": "sum2", "inputs": ["tanh1"], "coeff": 0.1}},
    "a cost that counts": {"more": {"type": "dce", "inputs": ["fc3", "labels"], "coeff": 0.5}},
    "no cost with labels": {"cost": {"type": "sum2", "inputs": ["fc3"]}},
}


@pytest.mark.parametrize("layers", HEADS.values(), ids=HEADS)
@pytest.mark.parametrize("scheme", ["A", "C"])
def test_any_head(scheme, layers):
    if scheme == "C" and "batch_norm" in str(layers):
        return
    check(network(**layers), 3, scheme, **FEW)


def towers(ranks=(0, 1), rest=None, **layers):
    """Two towers, each on a rank, which see each other's maps at two places; between and behind, layers of all."""
    a, b = ([rank] for rank in ranks)
    given = {
        "data": {"type": "data", "size": [6, 5]},
        "mix": {"type": "conv", "filters": 3, "size": 1},
        "conv1a": {"type": "conv", "filters": 4, "size": 3, "pad": 1, "neuron": "relu", "inputs": ["mix"], "ranks": a},
        "conv1b": {"type": "conv", "filters": 4, "size": 3, "pad": 1, "neuron": "tanh", "inputs": ["mix"], "ranks": b},
        "both": {"type": "concat", "inputs": ["conv1a", "conv1b"], "ranks": b},
        "conv2a": {"type": "conv", "filters": 3, "size": 3, "inputs": ["conv1a"]},
        "conv2b": {"type": "conv", "filters": 3, "size": 3, "inputs": ["both"]},
        "sum": {"type": "eltsum", "inputs": ["conv2a", "conv2b"]},
        "conv3": {"type": "conv", "filters": 4, "size": 2},
        "fc1": {"type": "fc", "outputs": 10, "ranks": a},
        "drop": {"type": "dropout", "keep": 0.5},
        "fc2a": {"type": "fc", "outputs": 5, "inputs": ["drop"], "ranks": b},
        "fc2c": {"type": "fc", "outputs": 5, "inputs": ["conv3"]},
        "fc2b": {"type": "fc", "outputs": 5, "inputs": ["conv3"]},
        "scores": {"type": "eltsum", "inputs": ["fc2a", "fc2b", "fc2c"]},
        "cost": {"type": "logreg", "inputs": ["scores", "labels"]},
    }
    for name in ("mix", "sum", "conv3", "fc2b", "fc2c", "scores") if rest is not None else ():
        given[name]["ranks"] = [rest]
    return wire(**{**given, **layers})


@pytest.mark.parametrize("sharded", [False, True])
@pytest.mark.parametrize("size, ranks", [(2, (0, 1)), (3, (2, 1)), (4, (3, 0))])
def test_layers_on_ranks_of_their_own(size, ranks, sharded):
    check(towers(ranks), size, "A", sharded=sharded, **FEW)


def test_layers_on_ranks_of_their_own_train_as_one():
    check(towers(), 2, "A", sharded=False, counts=(12, 12, 7), lr=1e-3)


def test_all_layers_on_one_rank():
    """It has the whole batch, and the other the images alone."""
    check(towers((1, 1), rest=1), 2, "A", sharded=False, **FEW)


@pytest.mark.parametrize("total", [12, 5, 1])
@pytest.mark.parametrize("scheme", ["A", "B", "C", "ranks"])
def test_all_ranks_start_the_same_transfers_in_the_same_order(scheme, total):
    """Of the same kind, too: here one kind is carried out as another is, by NCCL it is not."""
    net, found = towers() if scheme == "ranks" else network(), []
    for rank in range(3):
        ranks = Silent(rank, 3)
        division = divided(net, ranks, "A" if scheme == "ranks" else scheme, sharded=scheme != "ranks")
        engine = Engine(net, Planner(None), batch_size=total, communicator=ranks, division=division, **OPTIONS)
        begin, end = engine.share(total)
        steps = [step for kind in ("train", "loss", "eval") for step in engine.plan(kind, end - begin, total)[1].steps]
        transfers = [(step, *filter(None, step.arguments.values())) for step in steps if starts(step)]
        found.append([(s.op, s.geometry.root, s.geometry.function, max(v.size for v in vs)) for s, *vs in transfers])
    assert found[0] and found == [found[0]] * 3


@SCHEMES
@pytest.mark.parametrize("size", [2, 4])
def test_evaluation_gives_each_rank_the_results_of_its_samples(scheme, size):
    data = batch(12, network(), 5)

    def evaluated(communicator=None, division=None):
        engine, _ = trained(network(), steps=3, counts=(12,), communicator=communicator, division=division)
        rank, found = communicator.rank if communicator else 0, []
        for total in (12, 5, 2):
            most = -(-total // size) if communicator else total
            part = slice(rank * most, min((rank + 1) * most, total))
            found.append(engine.evaluate(data["pixels"][part], data["labels"][part], total=total))
        return found

    one = evaluated()
    for total in range(3):
        parts = zip(*(of_rank[total] for of_rank in ranks(size, network(), scheme, evaluated)), strict=True)
        for own, expected in zip(parts, one[total], strict=True):
            np.testing.assert_allclose(np.concatenate(own, axis=1), expected, rtol=1e-12)


def ranks(size, network, scheme, function):
    """What a function of a communicator and a division returns for each rank."""
    return together(size, lambda communicator: function(communicator, divided(network, communicator, scheme)))


@SCHEMES
def test_a_run_goes_on_with_another_number_of_ranks(scheme):
    """Two steps of one rank, then three of three ranks, and the other way round, are five steps of one."""
    options = {"counts": (12,), "rule": Rule(decay=0.9)}
    layers = {"fc1": {"type": "fc", "outputs": 21, "inputs": ["drop"], "solver": {"update_every": 3}}}
    straight, _ = trained(network(**layers), steps=5, **options)

    def part(first, count, state, communicator=None, division=None):
        engine, _ = trained(network(**layers), steps=0, communicator=communicator, division=division, **options)
        if state:
            engine.load(*state)
        go_on(engine, first, count, communicator)
        return engine.tensors(), engine.momentum(), engine.extras()

    def shared(first, count, state):
        found = ranks(3, network(**layers), scheme, lambda *where: part(first, count, state, *where))
        assert all(keys(of_rank) == keys(found[0]) for of_rank in found)
        return found[0]

    for final in shared(2, 3, part(0, 2, None)), part(2, 3, shared(0, 2, None)):
        for own, one in zip(
            flat(final), flat((straight.tensors(), straight.momentum(), straight.extras())), strict=True
        ):
            np.testing.assert_allclose(own, one, rtol=1e-10, atol=1e-13)


def own_count(communicator, total):
    """Samples of a rank, of so many."""
    if communicator is None:
        return total
    most = -(-total // communicator.size)
    return max(0, min(total - communicator.rank * most, most))


def keys(state):
    return [list(arrays) for arrays in state]


def flat(state):
    tensors, momentum, extras = state
    return [*tensors.values(), *momentum.values(), *(array for arrays in extras.values() for array in arrays.values())]


def test_what_ranks_report_is_of_the_whole():
    """Magnitudes of parameters, of which each rank has a part, and what costs have counted."""
    layers = {"more": {"type": "dce", "inputs": ["fc3", "labels"], "coeff": 0.5}}

    def reported(communicator=None, division=None):
        where = {"communicator": communicator, "division": division}
        engine, _ = trained(network(**layers), steps=3, counts=(12, 5), **where)
        return engine.magnitudes(), engine.counts()["more"], engine.first_nonfinite(own_count(communicator, 12), 12)

    magnitudes, counts, bad = reported()
    assert bad is None
    for found, _, none in (shared := ranks(3, network(**layers), "C", reported)):
        assert none is None
        for name, expected in magnitudes.items():
            np.testing.assert_allclose(found[name], expected, rtol=1e-6, err_msg=name)
    np.testing.assert_array_equal(sum(own for _, own, _ in shared), counts)


@pytest.mark.parametrize("scheme", ["A", "B"])
def test_a_loss_that_is_not_finite_stops_all_ranks(scheme):
    """The samples of one rank alone are affected, and other ranks see that in what comes from there."""
    came = {"A": ("drop", "drop shares 0"), "B": ("drop", "drop whole 1")}[scheme]

    def stopped(communicator, division):
        engine, _ = trained(network(), steps=2, counts=(12,), communicator=communicator, division=division)
        engine.parameters["conv.weight"][...] = np.inf if communicator.rank == 1 else 1
        before = engine.tensors()
        go_on(engine, 2, 1, communicator)
        after = engine.tensors()
        stays = all(np.array_equal(array, before[name], equal_nan=True) for name, array in after.items())
        return np.isfinite(engine.history(2, 3)[0, 0]), stays, engine.first_nonfinite(6, 12)

    assert ranks(2, network(), scheme, stopped) == [(True, True, came), (False, True, ("conv", "conv"))]


def test_what_cannot_be_divided_is_told():
    def wrong(network, scheme="A", sharded=True, **options):
        def made(communicator):
            where = {"communicator": communicator, "division": divided(network, communicator, scheme, sharded=sharded)}
            return trained(network, steps=0, counts=(4,), **where, **options)

        with pytest.raises(ConfigError) as caught:
            together(2, made)
        return str(caught.value)

    assert "expected ranks below 2" in wrong(towers((0, 2)))
    assert "scheme B" in wrong(towers(), "B")
    share = {"type": "fc", "outputs": 5, "inputs": ["conv3"], "share": "fc2c", "ranks": [0]}
    assert "layer 'fc2b': ranks: expected the ranks of 'fc2c'" in wrong(towers(fc2b=share), sharded=False)
    assert "batch_norm needs the batch at once" in wrong(network(logistic2={"type": "batch_norm"}), "C")
    assert "norm of all gradients" in wrong(network(), rule=Rule(clip=1.0))
    assert "sharded" in wrong(network(), exchange=Exchange(update="sharded"))


def on_gpu(ranks, backend, scheme, capture):
    """What a rank on a GPU of its own reports, and its checkpoint."""
    net = towers() if scheme == "ranks" else network()
    division = divided(net, ranks, "A" if scheme == "ranks" else scheme, sharded=scheme != "ranks")
    options = {"backend": backend, "dtype": np.float32, "capture": capture, "counts": (12, 7, 1), "lr": 2e-3}
    engine, history = trained(net, steps=12, communicator=ranks, division=division, **options)
    return history, engine.tensors()


@pytest.mark.multi_gpu
@pytest.mark.parametrize("scheme", ["A", "B", "C", "ranks"])
def test_two_gpus_train_as_one_host(scheme):
    """Captured with the bits of plain steps; in every third one, the second rank has no sample of its own."""
    plain, captured = (gpus.together(2, on_gpu, scheme, capture) for capture in (False, True))
    for (history, tensors), (again, others) in zip(plain, captured, strict=True):
        assert history.tobytes() == again.tobytes()
        assert all(tensors[name].tobytes() == others[name].tobytes() for name in tensors)
    net = towers() if scheme == "ranks" else network()
    engine, history = trained(net, steps=12, counts=(12, 7, 1), lr=2e-3, dtype=np.float32)
    np.testing.assert_allclose(sum(own for own, _ in plain)[0], history[0], rtol=2e-3)
    for name, array in engine.tensors().items():
        np.testing.assert_allclose(plain[0][1][name], array, rtol=5e-3, atol=1e-4, err_msg=name)


@pytest.mark.gpu
@SCHEMES
def test_the_steps_of_a_rank_run_captured_on_a_gpu(cuda, scheme):
    """One of two whose transfers move nothing: every operation is bound, with what it needs of its place."""
    found = []
    for capture in (False, True):
        silent = Silent(0, 2)
        options = {"backend": cuda, "dtype": np.float32, "capture": capture, "counts": (12,)}
        division = divided(network(), silent, scheme)
        engine, _ = trained(network(), steps=6, communicator=silent, division=division, **options)
        assert (engine.executor("train", 6, 12)._replay is not None) == capture
        found.append(engine.plan("train", 6, 12)[1].peak)
    assert found[0] == found[1]
