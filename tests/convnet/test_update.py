"""How parameters move: Nesterov, clipping, bounds, periods, averages; each against the formula, and on resume."""

import numpy as np
import pytest

from convnet.config.schema import Solver
from convnet.graph.engine import Engine
from convnet.graph.update import Rule
from convnet.train.rates import RateTable, trainable
from kernels.backend import NumPy
from layers.options import ConfigError
from tests.convnet.networks import batch, rates, small


def make(network=None, backend=None, **options):
    options = {"batch_size": 6, "mean": 127.5, "std": 60.0, "seed": 3, **options}
    engine = Engine(network or small(), backend or NumPy(), **options)
    engine.initialize()
    return engine


def train(engine, steps, solver=None, begin=0):
    """With the rates of `solver`, or else the same ones for all."""
    table = RateTable(engine.network, solver or Solver(), steps_total=100, steps_per_epoch=10)
    for step in range(begin, begin + steps):
        now = table.at(step) if solver else rates(engine)
        engine.train(**batch(6, engine.network, step), step=step, rates=now)
    return engine


def bits(engine):
    extras = {f"{kind} {name}": array for kind, arrays in engine.extras().items() for name, array in arrays.items()}
    return {name: array.tobytes() for name, array in {**engine.tensors(), **engine.momentum(), **extras}.items()}


def gradients(engine, step=0):
    """Those of one batch, with nothing moved."""
    engine.feed(**batch(6, engine.network, step), step=step, offset=0)
    engine.executor("first", 6).run()
    return {name: array.copy() for name, array in engine.gradients.items()}


def slow(every=3, **replace):
    """A network one layer of which moves at every third step."""
    fc1 = {"type": "fc", "outputs": 20, "solver": {"update_every": every}}
    return small(**{"bn1": {"type": "neuron", "kind": "relu"}, "fc1": fc1, **replace})


EVERYTHING = Rule(nesterov=True, clip=0.5, decay=0.9)
BOUNDED = {
    "conv2": {"type": "conv", "filters": 8, "size": 3, "pad": 1, "solver": {"wball": 1.5}},
    "fc2": {"type": "fc", "outputs": 4, "solver": {"norm_min": 0.02, "norm_max": 0.03, "update_every": 2}},
}


def test_nesterov_steps_are_those_of_the_formula():
    engine = make(dtype=np.float64, rule=Rule(nesterov=True))
    for step in range(2):
        w, v, dw = engine.tensors(), engine.momentum(), gradients(engine, step)
        engine.train(**batch(6, engine.network, step), step=step, rates=rates(engine, decay=0.5))
        for name, now in engine.momentum().items():
            lr, momentum, decay = (float(np.float32(x)) for x in (0.01, 0.9, 0.5))
            pull = lr * (dw[name] + decay * w[name])
            np.testing.assert_allclose(now, momentum * v[name] - pull, rtol=1e-9, atol=1e-14)
            np.testing.assert_allclose(engine.tensors()[name], w[name] + momentum * now - pull, rtol=1e-9, atol=1e-14)


def test_clipping_brings_the_norm_of_all_gradients_down():
    clipped, free = make(dtype=np.float64, rule=Rule(clip=0.05)), make(dtype=np.float64)
    norm = np.sqrt(sum(np.square(array).sum() for array in gradients(clipped).values()))
    assert norm > 0.05
    for engine in (clipped, free):
        engine.train(**batch(6, engine.network), step=0, rates=rates(engine, decay=0))
    np.testing.assert_allclose(clipped.norms(0, 1), norm, rtol=1e-9)
    for name, step in free.momentum().items():
        np.testing.assert_allclose(clipped.momentum()[name], step * 0.05 / (norm + 1e-6), rtol=1e-9, atol=1e-15)


def test_a_norm_below_the_limit_changes_no_bit():
    assert bits(train(make(rule=Rule(clip=1e6)), 3)) == bits(train(make(), 3))


def test_clipping_with_micro_batches_is_that_of_the_whole_batch():
    network = small(bn1={"type": "neuron", "kind": "relu"})
    whole, parts = (make(network, dtype=np.float64, accumulate=n, rule=Rule(clip=0.05)) for n in (1, 3))
    for engine in (whole, parts):
        train(engine, 3)
    np.testing.assert_allclose(parts.norms(0, 3), whole.norms(0, 3), rtol=1e-9)
    for name, array in whole.tensors().items():
        np.testing.assert_allclose(parts.tensors()[name], array, rtol=1e-9, atol=1e-12)


def test_wball_scales_each_output_to_the_norm_after_each_update():
    engine = train(make(small(**BOUNDED), dtype=np.float64), 2, Solver())
    np.testing.assert_allclose(np.linalg.norm(engine.parameters["conv2.weight"].reshape(8, -1), axis=1), 1.5)
    w = engine.parameters["fc2.weight"]
    q = np.linalg.norm(w - w.mean(1, keepdims=True), axis=1) / w.shape[1]
    assert ((q > 0.02 * (1 - 1e-6)) & (q < 0.03 * (1 + 1e-6))).all()
    assert not np.allclose(np.linalg.norm(engine.parameters["conv1.weight"].reshape(8, -1), axis=1), 1.5)


def test_the_weights_of_a_local_layer_only_shrink():
    layers = {"conv2": {"type": "local", "filters": 8, "size": 3, "pad": 1, "solver": {"wball": 1.4}}}
    engine = make(small(**layers), dtype=np.float64)
    before = np.linalg.norm(engine.tensors()["conv2.weight"].reshape(960, -1), axis=1)
    assert (before < 1.39).any() and (before > 1.41).any()
    train(engine, 1)
    after = np.linalg.norm(engine.tensors()["conv2.weight"].reshape(960, -1), axis=1)
    assert (after <= 1.4 * (1 + 1e-12)).all() and (after < 1.39).any()


def test_weights_that_are_frozen_are_not_scaled():
    network = small(**BOUNDED)
    engine = make(network, trainable=[name for name in network.params if not name.startswith("conv2")])
    before = engine.tensors()["conv2.weight"]
    np.testing.assert_array_equal(train(engine, 1).tensors()["conv2.weight"], before)


@pytest.mark.parametrize(
    ("solver", "message"),
    [
        ({"norm_min": 2, "norm_max": 1}, "solver.norm_max: expected a number >= norm_min (2.0), found 1.0"),
        ({"norm_min": 2, "wball": 1}, "solver: expected either wball or norm_min and norm_max, found both"),
        ({"wball": 0}, "solver.wball: expected a number > 0, found 0"),
        ({"update_every": 0}, "solver.update_every: expected an integer >= 1, found 0"),
    ],
)
def test_bounds_that_cannot_be(solver, message):
    with pytest.raises(ConfigError) as found:
        small(fc2={"type": "fc", "outputs": 4, "solver": solver})
    assert str(found.value) == f"layer 'fc2': {message}"


def test_a_batch_norm_has_no_weights_to_bound():
    with pytest.raises(ConfigError, match="layer 'bn1': solver: unknown option 'wball'"):
        small(bn1={"type": "batch_norm", "solver": {"wball": 1}})


def test_a_layer_is_updated_with_the_mean_gradient_of_its_period():
    engine = make(slow(), dtype=np.float64)
    start, sums = engine.tensors(), 0
    for step in range(3):
        sums = sums + gradients(engine, step)["fc1.weight"]
        train(engine, 1, Solver(lr=0.01, momentum=0.9), begin=step)
        moved = engine.tensors()["fc1.weight"] != start["fc1.weight"]
        assert moved.any() == (step == 2)
        assert (engine.tensors()["fc2.weight"] != start["fc2.weight"]).any()
    share, lr = np.float32(1 / 3), np.float32(0.01)
    np.testing.assert_allclose(engine.momentum()["fc1.weight"], -float(lr) * float(share) * sums, rtol=1e-9, atol=1e-14)
    assert all((array == 0).all() for array in engine.extras()["gradients"].values())


def test_only_layers_with_a_period_have_gradients_that_wait():
    assert make(slow()).extras()["gradients"].keys() == {"fc1.weight", "fc1.bias"}
    assert "gradients" not in make(slow(1)).extras()
    assert "gradients" not in make(slow(), trainable=["fc2.weight"]).extras()


def test_a_period_with_micro_batches():
    whole, parts = (make(slow(), dtype=np.float64, accumulate=n) for n in (1, 3))
    for engine in (whole, parts):
        train(engine, 4, Solver())
    for name, array in whole.tensors().items():
        np.testing.assert_allclose(parts.tensors()[name], array, rtol=1e-9, atol=1e-12)


def test_averages_follow_parameters_and_statistics():
    engine = make(dtype=np.float64, rule=Rule(decay=0.75, warmup=False))
    expected = engine.tensors()
    np.testing.assert_array_equal(engine.extras()["ema"]["conv1.weight"], expected["conv1.weight"])
    for step in range(3):
        train(engine, 1, begin=step)
        expected = {name: 0.75 * expected[name] + 0.25 * array for name, array in engine.tensors().items()}
    for name, array in engine.extras()["ema"].items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-9, atol=1e-14)
    assert engine.extras()["ema"].keys() == engine.tensors().keys()


def test_the_network_is_evaluated_with_the_averages():
    """After few steps they already stand near the weights and the statistics: the decay begins low."""
    engine, plain = train(make(rule=Rule(decay=0.9999)), 10), make()
    data = batch(6, engine.network, 50)
    plain.load(engine.extras()["ema"])
    for found, expected in zip(*(e.evaluate(data["pixels"], data["labels"]) for e in (engine, plain)), strict=True):
        np.testing.assert_array_equal(found, expected)
    averages, start = engine.extras()["ema"], make().tensors()
    for name, array in engine.tensors().items():
        if not name.endswith("bias"):
            assert np.abs(averages[name] - array).mean() < 0.7 * np.abs(start[name] - array).mean(), name


def test_averages_do_not_touch_training():
    assert train(make(rule=Rule(decay=0.9)), 3).tensors()["fc1.weight"].tobytes() == (
        train(make(), 3).tensors()["fc1.weight"].tobytes()
    )


@pytest.mark.parametrize("stop", [1, 2, 3, 4])
def test_everything_goes_on_with_the_same_bits(stop):
    solver, network = Solver(weight_decay=1e-3), slow(**BOUNDED)
    straight = train(make(network, rule=EVERYTHING), 5, solver)
    first, second = train(make(network, rule=EVERYTHING), stop, solver), make(network, rule=EVERYTHING, seed=4)
    second.seed = 3
    second.load(first.tensors(), first.momentum(), first.extras())
    assert bits(train(second, 5 - stop, solver, begin=stop)) == bits(straight)


def test_an_unhealthy_step_changes_nothing():
    network = slow(**BOUNDED)
    engine = train(make(network, rule=EVERYTHING), 2, Solver())
    engine.parameters["conv2.weight"][...] = np.inf
    before = bits(engine)
    train(engine, 1, Solver(), begin=2)
    assert bits(engine) == before


def test_memory_counts_what_was_added():
    plain, full = make(slow(1)), make(slow(), rule=EVERYTHING)
    assert full.memory["parameters"] == plain.memory["parameters"] * 5 // 3


# Freezing


def backward(engine):
    return {step.layer for step in engine.plan("train", 6)[0].steps if step.phase == "backward"}


def frozen(lr=0, **layers):
    network = small(**layers)
    return make(network, trainable=trainable(network, Solver(lr=lr)))


def test_below_a_learning_rate_of_0_no_gradient_is_computed():
    off = {"lr": 0}
    layers = {
        "conv1": {"type": "conv", "filters": 8, "size": 3, "pad": 1, "bias": False, "solver": off},
        "bn1": {"type": "batch_norm", "solver": off},
    }
    engine = frozen(0.1, **layers)
    assert not backward(engine) & {"data", "conv1", "bn1", "relu1"} and "conv2" in backward(engine)
    before = engine.tensors()
    after = train(engine, 2).tensors()
    for name in ("conv1.weight", "bn1.weight", "bn1.bias"):
        np.testing.assert_array_equal(after[name], before[name])
    assert (after["bn1.running_mean"] != before["bn1.running_mean"]).all()  # statistics are not learned


@pytest.mark.parametrize(
    ("solver", "moves"),
    [({"lr": 0}, ""), ({"lr": 0, "lr_bias": 0.1}, "bn1.bias"), ({"lr": 0.1, "lr_bias": 0}, "bn1.weight")],
)
def test_weight_and_bias_of_a_batch_norm_are_frozen_apart(solver, moves):
    engine = frozen(0.1, bn1={"type": "batch_norm", "solver": solver})
    before = engine.tensors()
    after = train(engine, 2).tensors()
    assert {n for n in ("bn1.weight", "bn1.bias") if (after[n] != before[n]).any()} == ({moves} if moves else set())
    assert (after["conv1.weight"] != before["conv1.weight"]).any()  # the gradient passes all the same


def test_a_bias_that_learns_needs_the_gradient_of_its_layer_alone():
    engine = frozen(0, conv2={"type": "conv", "filters": 8, "size": 3, "pad": 1, "solver": {"lr_bias": 0.1}})
    assert engine.trainable == ("conv2.bias",)
    assert "conv2" in backward(engine) and not backward(engine) & {"relu1", "bn1", "conv1"}
    steps = [step.op.name for step in engine.plan("train", 6)[0].steps if step.phase == "backward"]
    assert "conv.bgrad" in steps and not {"conv.wgrad", "conv.dgrad", "fc.wgrad"} & set(steps)


# On a GPU


@pytest.mark.gpu
def test_cuda_follows_numpy(cuda):
    network = slow(**BOUNDED)
    host, device = (train(make(network, backend, rule=EVERYTHING), 4, Solver()) for backend in (NumPy(), cuda))
    np.testing.assert_allclose(device.norms(0, 4), host.norms(0, 4), rtol=1e-4)
    for name, array in host.tensors().items():
        np.testing.assert_allclose(device.tensors()[name], array, rtol=1e-3, atol=1e-5)
    for kind, arrays in host.extras().items():
        for name, array in arrays.items():
            np.testing.assert_allclose(device.extras()[kind][name], array, rtol=1e-3, atol=1e-5)


@pytest.mark.gpu
def test_the_captured_step_gives_the_bits_of_the_plain_one(cuda):
    network = slow(**BOUNDED)
    engines = [make(network, cuda, rule=EVERYTHING, capture=capture) for capture in (False, True)]
    plain, captured = (train(engine, 7, Solver()) for engine in engines)
    assert captured.executor("train", 6)._replay is not None
    assert bits(plain) == bits(captured)
    np.testing.assert_array_equal(plain.norms(0, 7), captured.norms(0, 7))
