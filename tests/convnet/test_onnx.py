"""ONNX models against onnx's reference evaluator."""

import json

import numpy as np
import pytest

from convnet import checkpoint, cli
from convnet.config import dump
from convnet.errors import UserError
from convnet.formats.onnx import onnx_model
from convnet.graph.engine import Engine
from kernels.backend import NumPy
from tests.convnet.networks import batch, wire
from tests.convnet.toy import CONFIG

MEAN, STD = (90.0, 100.0, 110.0), (50.0, 60.0, 70.0)
DATA = {"type": "data", "channels": 3, "size": [11, 13]}
TAIL = {
    "fc": {"type": "fc", "outputs": 5},
    "cost": {"type": "logreg", "inputs": ["fc", "labels"]},
}


def conv(**options):
    return {"type": "conv", "filters": 6, "size": 3, **options}


def pool(**options):
    return {"type": "pool", "size": 3, "stride": 2, **options}


NETWORKS = {
    "plain": {"a": conv(stride=[2, 1], pad=[1, 2], neuron="relu"), "b": {"type": "batch_norm"}},
    "groups": {"a": conv(neuron="tanh"), "b": conv(groups=3, bias=False, neuron="logistic")},
    "overhang": {"a": conv(stride=3, rounding="convnet"), "b": pool(rounding="convnet", size=2)},
    "dropped": {"a": conv(stride=4), "b": pool(mode="avg")},
    "ceil": {"a": pool(rounding="ceil", pad=1), "b": pool(mode="avg", rounding="ceil", pad=1)},
    "counted": {"a": pool(mode="avg", pad=1, count_pad=True)},
    "counted, nothing hangs over": {"a": conv(pad=[1, 2]), "b": pool(mode="avg", pad=1, count_pad=True, stride=[3, 2])},
    "start": {"a": pool(start=-1, rounding="convnet"), "b": pool(mode="avg", start=-2, rounding="convnet")},
    "norms": {
        "a": conv(filters=8),
        "b": {"type": "cmrnorm", "size": 5, "scale": 0.3, "min_div": 2},
        "c": {"type": "cmrnorm", "size": 3, "scale": 0.2, "divide": False},
    },
    "joins": {
        "a": conv(pad=1),
        "b": conv(pad=1, inputs="data"),
        "s": {"type": "eltsum", "inputs": ["a", "b"], "coefficients": [1, -2]},
        "m": {"type": "eltmax", "inputs": ["a", "s"]},
        "c": {"type": "concat", "inputs": ["m", "b", "a"]},
        "g": {"type": "global_pool"},
    },
    "vectors": {
        "a": {"type": "fc", "outputs": 7, "neuron": "abs"},
        "d": {"type": "dropout", "scale": "eval", "keep": 0.7},
        "e": {"type": "dropout"},
        "s": {"type": "softmax"},
        "p": {"type": "pass", "inputs": ["s", "d"]},
    },
    "neurons": {
        "a": conv(neuron="tanh[1.7,0.6]"),
        "b": conv(neuron="softrelu"),
        "c": conv(neuron="brelu[0.4]"),
        "d": conv(neuron="drelu[0.7]"),
        "e": conv(neuron="square"),
        "f": {"type": "neuron", "kind": "linear[300,0.5]"},
        "g": {"type": "neuron", "kind": "softrelu"},  # above 4, and below
        "h": {"type": "neuron", "kind": "log[0.3]"},
    },
    "shared": {
        "a": conv(filters=3, pad=1),
        "b": conv(filters=3, pad=1, share="a"),
        "g": {"type": "global_pool", "mode": "max"},
    },
}


def engine_of(layers, tail=TAIL, mean=MEAN):
    network = wire(data=DATA, **layers, **tail)
    engine = Engine(network, NumPy(), batch_size=8, dtype=np.float64, mean=np.array(mean), std=np.array(STD))
    engine.initialize()
    rng = np.random.default_rng(2)
    for name, array in engine.states.items():
        array[...] = rng.random(array.shape) + (0.5 if name.endswith("var") else 0)
    return engine


@pytest.mark.parametrize("name", [*NETWORKS, "mean image"])
def test_the_reference_evaluator_computes_what_we_do(name):
    from onnx.reference import ReferenceEvaluator

    layers, mean = NETWORKS.get(name, NETWORKS["plain"]), np.array(MEAN)
    if name == "mean image":
        shape = engine_of(layers).network.data[0].shape
        mean = np.random.default_rng(1).uniform(80, 120, (shape.channels, shape.height, shape.width))
    engine = engine_of(layers, mean=mean)
    model = onnx_model(engine.network, engine.tensors(), mean=mean, std=np.array(STD))
    given = batch(8, engine.network)  # 8 channels are normalised: the evaluator's LRN takes one number for the other
    pixels = given["pixels"].transpose(0, 3, 1, 2).astype(np.float32)
    (scores,) = ReferenceEvaluator(model).run(None, {"pixels": pixels})
    wanted, *_ = engine.evaluate(given["pixels"], given["labels"])
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    assert scores.shape == (8, 5)
    np.testing.assert_allclose((exponentials / exponentials.sum(axis=1, keepdims=True)).T, wanted, rtol=3e-5, atol=1e-7)


@pytest.mark.parametrize(
    "layer, expected",
    [
        ({"type": "cmrnorm", "size": 4}, "size 4, blocked False"),
        ({"type": "cmrnorm", "size": 3, "blocked": True}, "size 3, blocked True"),
        ({"type": "rnorm", "size": 3}, "a rnorm layer"),
        (pool(mode="maxabs"), "mode maxabs"),
        (pool(mode="avg", size=4, stride=3, pad=1, count_pad=True, rounding="ceil"), "count_pad with windows"),
        (conv(shared_biases=False), "a bias of its own for each position"),
    ],
)
def test_what_onnx_cannot_say_is_an_error_with_the_layer(layer, expected):
    engine = engine_of({"odd": layer})
    with pytest.raises(UserError, match=f"layer 'odd': {expected}.* has no counterpart in ONNX"):
        onnx_model(engine.network, engine.tensors(), mean=MEAN, std=STD)


def test_all_obstacles_are_named():
    engine = engine_of({"a": {"type": "rnorm", "size": 3}, "b": conv(), "c": pool(mode="maxabs"), "d": {"type": "sum"}})
    with pytest.raises(UserError) as caught:
        onnx_model(engine.network, engine.tensors(), mean=MEAN, std=STD)
    assert [line.split(" has no")[0] for line in str(caught.value).splitlines()] == [
        "layer 'a': a rnorm layer", "layer 'c': mode maxabs with start None", "layer 'd': a sum layer"
    ]  # fmt: skip


@pytest.mark.parametrize(
    "costs, outputs",
    [
        ({"cost": {"type": "sum2", "inputs": "code"}}, 7),
        (
            {"small": {"type": "sum2", "inputs": "code", "coeff": 0.1}, **TAIL, "fc": {**TAIL["fc"], "inputs": "code"}},
            5,
        ),  # the classifier's, not the first
    ],
)
def test_the_scores_are_what_the_main_cost_reads(costs, outputs):
    engine = engine_of({"code": {"type": "fc", "outputs": 7}}, costs)
    model = onnx_model(engine.network, engine.tensors(), mean=MEAN, std=STD)
    assert [side.dim_value for side in model.graph.output[0].type.tensor_type.shape.dim] == [0, outputs]


def test_export_of_a_run(tmp_path, monkeypatch, capsys):
    from convnet.config import load_config
    from convnet.session import make_engine, make_network

    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.yaml").write_text(CONFIG)
    config = load_config("toy.yaml")
    engine = make_engine(config, make_network(config), NumPy())
    engine.initialize()
    state = {"step": 4, "classes": ["a", "b", "c"]}
    checkpoint.save(tmp_path / "run/checkpoints", engine.tensors(), {}, dump(config), state)
    assert cli.main(["export", "run", "-o", "toy.onnx", "--format", "onnx"]) == 0
    assert "toy.onnx: run/checkpoints/step-00000004 as onnx" in capsys.readouterr().out

    import onnx

    model = onnx.load("toy.onnx")
    assert model.producer_name == "convnet" and model.graph.name == "toy"
    assert json.dumps([i.name for i in model.graph.input]) == '["pixels"]'
    assert cli.main(["export", "run", "-o", "toy.safetensors"]) == 0
    from safetensors.numpy import load_file

    found = load_file("toy.safetensors")
    assert found.pop("bn1.num_batches_tracked") == 4
    assert found.keys() == engine.tensors().keys()
    assert {path.name for path in tmp_path.iterdir()} == {"run", "toy.onnx", "toy.safetensors", "toy.yaml"}
