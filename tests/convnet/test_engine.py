"""The engine: programs, memory, gradient accumulation, and what it promises about bits."""

import numpy as np
import pytest

from convnet.graph.check_grads import Checker, report
from convnet.graph.engine import Engine
from convnet.graph.program import RING
from kernels.backend import NumPy
from tests.convnet.networks import batch, rates, small, wire


def make(network=None, backend=None, **options):
    options = {"batch_size": 6, "mean": 127.5, "std": 60.0, "seed": 3, **options}
    engine = Engine(network or small(), backend or NumPy(), **options)
    engine.initialize()
    return engine


def train(engine, steps, n=6, seed=0):
    for step in range(steps):
        engine.train(**batch(n, engine.network, seed + step), step=step, rates=rates(engine))
    return engine


def bits(engine):
    return {name: array.tobytes() for name, array in {**engine.tensors(), **engine.momentum()}.items()}


def test_training_lowers_the_loss_on_one_batch():
    engine = make(small(drop={"type": "dropout", "keep": 1.0}))
    data = batch(6, engine.network)
    for step in range(60):
        engine.train(**data, step=step, rates=rates(engine, lr=0.05))
    losses = engine.history(0, 60)[0] / 6
    assert losses[0] == pytest.approx(np.log(4), abs=0.8)
    assert losses[-1] < 0.2 * losses[0]


def test_two_runs_give_the_same_bits():
    assert bits(train(make(), 3)) == bits(train(make(), 3))


def test_what_the_arena_held_before_does_not_matter():
    """Every value is written before it is read: poison changes nothing."""
    clean, poisoned = make(), make()
    for kind in ("train", "eval"):
        poisoned.executor(kind, 6)
    poisoned._arena[:] = 0xFF  # NaN in every float
    assert bits(train(clean, 2)) == bits(train(poisoned, 2))


def test_an_arena_that_grows_between_steps_changes_nothing(backend):
    """What was bound to the old one, a captured graph too, is bound anew."""
    steady, grown = make(backend=backend), make(backend=backend)
    old = train(grown, 3).executor("train", 6)
    grown.plan("train", 60)
    for engine, steps in ((steady, range(6)), (grown, range(3, 6))):
        for step in steps:
            engine.train(**batch(6, engine.network, step), step=step, rates=rates(engine))
    assert grown.memory["arena"] > steady.memory["arena"]
    assert grown.executor("train", 6).arena is grown._arena is not old.arena
    assert bits(grown) == bits(steady)


def test_rates_are_uploaded_where_they_change(monkeypatch):
    """The caller may write to its array between the steps."""
    engine, sent = make(), []
    upload, table = engine.store.set, rates(engine)
    monkeypatch.setattr(engine.store, "set", lambda name, array: (sent.append(name), upload(name, array)))
    for step, factor in enumerate((1, 1, 0.5, 1)):
        table *= np.float32(factor)
        engine.train(**batch(6, engine.network), step=step, rates=table)
        np.testing.assert_array_equal(engine.arrays["rates"], table)
    assert sent.count("rates") == 2 and sent.count("clock") == 4


def test_accumulated_micro_batches_equal_one_batch():
    network = small(bn1={"type": "neuron", "kind": "relu"})  # batch norm sees micro-batches, so it would differ
    whole, parts = make(network, dtype=np.float64), make(network, dtype=np.float64, accumulate=3)
    for engine in (whole, parts):
        train(engine, 3)
    for name, array in whole.tensors().items():
        np.testing.assert_allclose(parts.tensors()[name], array, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.history(0, 3), whole.history(0, 3), rtol=1e-9)


def test_a_short_last_batch_in_micro_batches_equals_it_in_one():
    """Five samples of six, in parts of 2, 2 and 1; dropout draws for each by its place in the whole batch."""
    network = small(bn1={"type": "neuron", "kind": "relu"})
    whole, parts = make(network, dtype=np.float64), make(network, dtype=np.float64, accumulate=3)
    for n in (6, 5, 2, 6):
        for engine in (whole, parts):
            train(engine, 2, n)
    for name, array in whole.tensors().items():
        np.testing.assert_allclose(parts.tensors()[name], array, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.history(0, 2), whole.history(0, 2), rtol=1e-9)


def test_a_short_last_batch_moves_weights_by_its_share():
    """The gradient is divided by the configured batch, so half a batch takes half a step."""
    network = small(bn1={"type": "neuron", "kind": "relu"}, drop={"type": "dropout", "keep": 1.0})
    engines = [make(network, dtype=np.float64), make(network, dtype=np.float64)]
    before = engines[0].tensors()
    half = batch(3, network)
    double = {name: np.concatenate([array, array]) for name, array in half.items()}
    for engine, data in zip(engines, (half, double), strict=True):
        engine.train(**data, step=0, rates=rates(engine, decay=0))
    for name, array in engines[0].tensors().items():
        full = engines[1].tensors()[name] - before[name]
        np.testing.assert_allclose(array - before[name], full / 2, rtol=1e-9, atol=1e-14)


def test_batch_norm_survives_a_last_batch_of_one_value():
    network = small(
        conv1={"type": "conv", "filters": 8, "size": [10, 12]},
        conv2={"type": "conv", "filters": 8, "size": 1},
        pool={"type": "pool", "mode": "max", "size": 1},
    )
    engine = train(make(network), 1, n=1)
    assert all(np.isfinite(array).all() for array in engine.tensors().values())


def test_evaluation_gives_probabilities_and_errors():
    engine = train(make(), 2)
    data = batch(5, engine.network, 9)
    p, results = engine.evaluate(data["pixels"], data["labels"])
    assert p.shape == (4, 5) and results.shape == (3, 5)
    np.testing.assert_allclose(p.sum(axis=0), 1, rtol=1e-5)
    np.testing.assert_allclose(results[0], -np.log(p[data["labels"], range(5)]), rtol=1e-4)
    np.testing.assert_array_equal(results[1], p.argmax(axis=0) != data["labels"])


@pytest.mark.parametrize("size", [1, 4, 9])
def test_evaluation_in_batches_of_another_size_gives_the_same(size):
    engines = [make(dtype=np.float64), make(dtype=np.float64, eval_batch=size)]
    data = batch(9, engines[0].network, 4)
    whole, parts = (
        np.hstack([np.vstack(e.evaluate(data["pixels"][i : i + n], data["labels"][i : i + n])) for i in range(0, 9, n)])
        for e, n in zip(engines, (6, size), strict=True)
    )
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_evaluation_changes_nothing():
    engine = train(make(), 2)
    before = bits(engine)
    data = batch(6, engine.network, 5)
    engine.evaluate(data["pixels"], data["labels"])
    assert bits(engine) == before


def test_frozen_parameters_stay_and_no_gradient_is_computed_below_them():
    network = small()
    head = [name for name in network.params if name.startswith("fc")]
    engine = make(network, trainable=head)
    before = engine.tensors()
    train(engine, 2)
    after = engine.tensors()
    assert all((after[name] != before[name]).any() for name in head)
    assert all((after[name] == before[name]).all() for name in network.params if name not in head)
    recorded, _ = engine.plan("train", 6)
    assert not [s for s in recorded.steps if s.phase == "backward" and s.layer in ("conv1", "conv2", "pool", "norm")]


def test_an_engine_that_only_evaluates_holds_no_gradients():
    trained = train(make(), 2)
    engine = make(trainable=())
    engine.load(trained.tensors())
    data = batch(6, engine.network, 9)
    for a, b in zip(*(e.evaluate(data["pixels"], data["labels"]) for e in (trained, engine)), strict=True):
        np.testing.assert_array_equal(a, b)
    assert engine.memory["parameters"] * 3 == trained.memory["parameters"]
    assert not engine.velocity and not engine.gradients


def test_a_loss_that_is_not_finite_stops_the_updates_and_names_its_layer():
    engine = train(make(), 2)
    engine.parameters["conv2.weight"][...] = np.inf
    healthy = engine.tensors()
    train(engine, 1, seed=7)
    assert not np.isfinite(engine.history(0, 1)[0])
    assert all(np.array_equal(engine.tensors()[name], healthy[name], equal_nan=True) for name in engine.parameters)
    assert engine.first_nonfinite(6)[0] == "conv2"


def straight():
    """Pixels read by a fully connected layer."""
    return wire(
        data={"type": "data", "size": [3, 2]},
        fc={"type": "fc", "outputs": 4},
        cost={"type": "logreg", "inputs": ["fc", "labels"]},
    )


def two_costs():
    """A second head on the convolution, its loss weighed less."""
    return small(
        drop={"type": "dropout", "keep": 1.0},
        pool={"type": "pool", "mode": "avg", "size": 2},
        relu1={"type": "neuron", "kind": "tanh"},
        aux={"type": "fc", "outputs": 4, "inputs": ["sum"]},
        aux_cost={"type": "logreg", "inputs": ["aux", "labels"], "coeff": 0.3},
    )


@pytest.mark.parametrize("network", [two_costs, straight], ids=["two_costs", "straight"])
def test_gradients_of_the_whole_network(network):
    checks = Checker(network(), batch=3, mean=127.5, std=60.0).run()
    assert all(check.right for check in checks), report(checks)


def test_a_second_cost_that_is_not_finite_stops_the_updates_and_shows():
    """Its own NaN reaches no loss of the first cost, but would reach the weights that they share."""
    engine = train(make(two_costs()), 2)
    engine.parameters["aux.bias"][...] = np.inf
    before = engine.tensors()
    engine.train(**batch(6, engine.network, 7), step=2, rates=rates(engine))
    rows = engine.network.watched
    finite = {name: np.isfinite(engine.history(0, 3)[row]).tolist() for name, row in rows.items()}
    assert finite == {"cost": [True, True, True], "aux_cost": [True, True, False]}
    assert all(np.array_equal(engine.tensors()[name], before[name]) for name in engine.parameters)
    assert engine.first_nonfinite(6) == ("aux", "aux")


def test_every_seed_is_a_seed_of_its_own():
    weights = [make(seed=seed).tensors()["fc1.weight"] for seed in (0, 1, 2**63, 2**64 - 2, 2**64 - 1)]
    assert len({array.tobytes() for array in weights}) == len(weights)


def test_history_keeps_the_last_steps():
    engine = train(make(), 3)
    np.testing.assert_array_equal(engine.history(1, 3), engine.history(0, 3)[:, 1:])
    with pytest.raises(ValueError, match=f"{RING} are kept"):
        engine.history(0, RING + 1)


def test_loading_what_was_saved_goes_on_with_the_same_bits():
    straight = train(make(), 4)
    first, second = train(make(), 2), make(seed=4)
    second.seed = 3
    second.load(first.tensors(), first.momentum())
    for step in (2, 3):
        second.train(**batch(6, second.network, step), step=step, rates=rates(second))
    assert bits(second) == bits(straight)


def test_planned_memory_is_what_is_allocated():
    engine = make()
    engine.executor("train", 6)
    peaks = [engine.plan(kind, 6)[1].peak for kind in ("train", "eval")]
    assert engine.memory["arena"] == max(peaks)


def test_magnitudes_are_mean_absolute_values():
    engine = train(make(), 2)
    found = engine.magnitudes()
    for name, momentum in engine.momentum().items():
        expected = np.abs(engine.tensors()[name]).mean(), np.abs(momentum).mean()
        np.testing.assert_allclose(found[name], expected, rtol=1e-5)


@pytest.mark.gpu
def test_cuda_follows_numpy(cuda):
    host, device = train(make(), 3), train(make(backend=cuda), 3)
    for name, expected in host.magnitudes().items():
        np.testing.assert_allclose(device.magnitudes()[name], expected, rtol=1e-3)
    np.testing.assert_allclose(device.history(0, 3), host.history(0, 3), rtol=1e-4)
    for name, array in host.tensors().items():
        np.testing.assert_allclose(device.tensors()[name], array, rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
def test_the_captured_step_gives_the_bits_of_the_plain_one(cuda):
    plain, captured = (train(make(backend=cuda, capture=capture), 6) for capture in (False, True))
    assert captured.executor("train", 6)._replay is not None
    assert plain.executor("train", 6)._replay is None
    assert bits(plain) == bits(captured)
    np.testing.assert_array_equal(plain.history(0, 6), captured.history(0, 6))
    data = batch(6, plain.network, 9)
    for _ in range(3):
        for a, b in zip(*(e.evaluate(data["pixels"], data["labels"]) for e in (plain, captured)), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.gpu
def test_two_cuda_runs_give_the_same_bits(cuda):
    assert bits(train(make(backend=cuda), 5, n=5)) == bits(train(make(backend=cuda), 5, n=5))
