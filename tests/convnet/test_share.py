"""Layers that use the weights of another: one array, gradients that add up, one entry wherever weights are listed."""

import numpy as np
import pytest

from convnet.checkpoint import load
from convnet.cli import main
from convnet.config import dump, load_config
from convnet.config.schema import Solver
from convnet.graph.check_grads import Checker
from convnet.graph.engine import Engine
from convnet.graph.net import describe
from convnet.train.rates import RateTable, trainable
from kernels.backend import NumPy
from layers.options import ConfigError
from tests.convnet.networks import batch, rates, wire
from tests.convnet.toy import CONFIG, write_toy

CONV = {"type": "conv", "filters": 4, "size": 3, "pad": 1}
LOCAL = {"type": "local", "filters": 4, "size": 3, "pad": 1}
FC = {"type": "fc", "outputs": 96}


def network(kind="conv", **replace):
    """Three layers of one kind in a row, the second and the third with the weights of the first."""
    layer, neuron = {"conv": CONV, "local": LOCAL, "fc": FC}[kind], {"type": "neuron", "kind": "tanh"}
    sections = {
        "data": {"type": "data", "channels": 4, "size": [4, 6]},
        "a": layer,
        "na": neuron,
        "b": {**layer, "share": "a"},
        "nb": neuron,
        "c": {**layer, "share": "b"},
        "out": {"type": "fc", "outputs": 3},
        "cost": {"type": "logreg", "inputs": ["out", "labels"]},
    }
    return wire(**{**sections, **replace})


def make(made, **options):
    engine = Engine(made, NumPy(), **{"batch_size": 6, "mean": 127.5, "std": 60.0, **options})
    engine.initialize()
    return engine


@pytest.mark.parametrize("kind", ["conv", "local", "fc"])
def test_gradients_are_those_of_all_uses(kind):
    checks = {check.name: check for check in Checker(network(kind), std=60.0, mean=127.5).run()}
    assert checks.keys() == {"a.weight", "a.bias", "b.bias", "c.bias", "out.weight", "out.bias"}
    assert all(check.right for check in checks.values()), checks


def test_the_weight_moves_as_the_mean_of_three_would():
    """The gradients of three equal copies sum to that of the one."""
    shared = make(network(), dtype=np.float64)
    apart = make(network(b=CONV, c=CONV), dtype=np.float64)
    start = shared.tensors()
    apart.load({**apart.tensors(), **start, **{f"{n}.weight": start["a.weight"] for n in "bc"}})
    for engine in (shared, apart):
        engine.train(**batch(6, engine.network), step=0, rates=rates(engine, decay=0))
    total = sum(apart.momentum()[f"{name}.weight"] for name in "abc")
    np.testing.assert_allclose(shared.momentum()["a.weight"], total, rtol=1e-9, atol=1e-14)
    for name in ("a.bias", "b.bias", "c.bias", "out.weight"):
        np.testing.assert_allclose(shared.momentum()[name], apart.momentum()[name], rtol=1e-9, atol=1e-14)


def test_micro_batches_add_up_too():
    whole, parts = (make(network(), dtype=np.float64, accumulate=n) for n in (1, 3))
    for engine in (whole, parts):
        for step in range(3):
            engine.train(**batch(6, engine.network, step), step=step, rates=rates(engine))
    for name, array in whole.tensors().items():
        np.testing.assert_allclose(parts.tensors()[name], array, rtol=1e-9, atol=1e-12)


def test_it_is_counted_and_kept_once():
    made = network()
    counts = {row["layer"]: row["parameters"] for row in describe(made)}
    assert (counts["a"], counts["b"], counts["c"]) == (4 * 4 * 9 + 4, 4, 4)
    assert list(make(made).tensors()) == list(made.params) == list(make(made).momentum())
    assert made.shared == {"b.weight": "a.weight", "c.weight": "a.weight"}


def test_the_learning_parameters_are_those_of_the_owner():
    made = network(a={**CONV, "solver": {"lr": 0.5}}, b={**CONV, "share": "a", "solver": {"lr": 0.25}})
    table = RateTable(made, Solver(), steps_total=1, steps_per_epoch=1)
    found = dict(zip(made.params, table.at(0)[:, 0].tolist(), strict=True))
    assert (found["a.weight"], found["a.bias"], found["b.bias"]) == (0.5, 0.5, 0.25)


@pytest.mark.parametrize("option", ["weight_decay", "wball", "norm_min", "norm_max"])
@pytest.mark.parametrize("through", ["a", "b"])
def test_options_of_weights_are_those_of_the_owner(option, through):
    """Of a layer that uses them, be it through another that does, they are an error: they would have no effect."""
    with pytest.raises(ConfigError) as found:
        network(c={**CONV, "share": through, "solver": {option: 0.5}})
    assert str(found.value) == f"layer 'c': solver.{option}: the weights are those of 'a', which sets how they learn"


@pytest.mark.parametrize("option", ["lr", "lr_bias", "momentum", "update_every"])
def test_options_of_biases_need_a_bias(option):
    solver = {option: 2 if option == "update_every" else 0.5}
    made = network(c={**CONV, "share": "a", "solver": solver})
    table = RateTable(made, Solver(momentum=0.1), steps_total=1, steps_per_epoch=1)
    rows = [tuple(table.at(step)[list(made.params).index(f"{name}.bias")]) for name in "bc" for step in (0, 1)]
    assert rows[:2] != rows[2:]  # it has an effect
    with pytest.raises(ConfigError, match=rf"^layer 'c': solver\.{option}: the weights are those of 'a'"):
        network(c={**CONV, "share": "a", "bias": False, "solver": solver})


def test_a_frozen_owner_freezes_all_uses():
    off = {"lr": 0}
    made = network(a={**CONV, "solver": off}, b={**CONV, "share": "a", "solver": off})
    engine = make(made, trainable=trainable(made, Solver()))
    layers = {step.layer for step in engine.plan("train", 6)[0].steps if step.phase == "backward"}
    assert layers == {"c", "out", "cost"}  # the bias of c learns
    wgrads = [step for step in engine.plan("train", 6)[0].steps if step.op.name == "conv.wgrad"]
    assert not wgrads


def test_a_use_below_takes_the_gradient_down_to_it():
    """The owner's gradient needs that of every layer above its uses, whatever else is frozen."""
    made = network(na={"type": "batch_norm", "solver": {"lr": 0}})
    engine = make(made, trainable=["a.weight"])
    layers = {step.layer for step in engine.plan("train", 6)[0].steps if step.phase == "backward"}
    assert layers == {"a", "na", "b", "nb", "c", "out", "cost"}


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({**CONV, "share": "d"}, "share: 'd' is not a layer above"),
        ({**CONV, "share": "out"}, "share: 'out' is not a layer above"),
        ({**CONV, "share": "na"}, "share: expected a layer of type conv, found 'na' of type neuron"),
        ({**FC, "share": "a"}, "share: expected a layer of type fc, found 'a' of type conv"),
        (
            {**CONV, "filters": 5, "share": "a"},
            "share: expected weights of the shape [5, 4, 3, 3], found those of 'a', [4, 4, 3, 3]",
        ),
        (
            {**CONV, "share": "a", "init": {"type": "gaussian"}},
            "init: the weights are those of 'a', which sets how they start",
        ),
    ],
)
def test_weights_that_cannot_be_shared(layer, message):
    with pytest.raises(ConfigError) as found:
        network(b=layer)
    assert str(found.value) == f"layer 'b': {message}"


SHARED = CONFIG.replace(
    "  pool1:", "  conv2: {type: conv, filters: 4, size: 3, pad: 1}\n"
    "  conv3: {type: conv, filters: 4, size: 3, pad: 1, share: conv2, neuron: relu}\n  pool1:"
)  # fmt: skip


def test_a_run_has_the_weight_once_in_its_files_and_resumes(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_toy(tmp_path, SHARED)
    assert main(["train", "toy.yaml", "--device", "cpu", "train.epochs=1"]) == 0
    found = load(next((tmp_path / "runs/toy/checkpoints").glob("step-*")))
    assert "conv3.bias" in found.weights and "conv3.weight" not in {**found.weights, **found.momentum}
    config = load_config("runs/toy/config.yaml")
    assert dump(config) == (tmp_path / "runs/toy/config.yaml").read_text()
    assert main(["train", "toy.yaml", "--device", "cpu", "--resume"]) == 0
    assert main(["eval", "runs/toy", "--device", "cpu"]) == 0
