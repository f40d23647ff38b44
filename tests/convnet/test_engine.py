"""The engine: programs, memory, gradient accumulation, and what it promises about bits."""

import numpy as np
import pytest

from convnet.graph.engine import Engine
from convnet.graph.program import RING
from kernels.backend import NumPy
from tests.convnet.networks import batch, rates, small


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


def test_accumulated_micro_batches_equal_one_batch():
    network = small(bn1={"type": "neuron", "kind": "relu"})  # batch norm sees micro-batches, so it would differ
    whole, parts = make(network, dtype=np.float64), make(network, dtype=np.float64, accumulate=3)
    for engine in (whole, parts):
        train(engine, 3)
    for name, array in whole.tensors().items():
        np.testing.assert_allclose(parts.tensors()[name], array, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.history(0, 3), whole.history(0, 3), rtol=1e-9)


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


def test_a_loss_that_is_not_finite_stops_the_updates_and_names_its_layer():
    engine = train(make(), 2)
    engine.parameters["conv2.weight"][...] = np.inf
    healthy = engine.tensors()
    train(engine, 1, seed=7)
    assert not np.isfinite(engine.history(0, 1)[0])
    assert all(np.array_equal(engine.tensors()[name], healthy[name], equal_nan=True) for name in engine.parameters)
    assert engine.first_nonfinite(6)[0] == "conv2"


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
