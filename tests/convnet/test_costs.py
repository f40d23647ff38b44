"""Networks with several costs, with costs that know no classes, and what they report."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from convnet.cli import main
from convnet.graph.check_grads import Checker
from convnet.graph.engine import Engine
from convnet.graph.net import Network
from convnet.results import Results
from convnet.run import find_checkpoint
from kernels.backend import NumPy
from layers.options import ConfigError
from tests.convnet.networks import batch, rates, wire
from tests.convnet.toy import CONFIG, rows, write_toy

DATA = {"type": "data", "channels": 2, "size": 4}
FC = {"type": "fc", "outputs": 3, "inputs": "data"}
LOGREG = {"type": "logreg", "inputs": ["fc", "labels"]}

HEADS = {
    "data": DATA,
    "body": {"type": "fc", "outputs": 6, "inputs": "data", "neuron": "tanh[1.7159,0.6667]"},
    "score": {"type": "fc", "outputs": 3},
    "p": {"type": "softmax", "inputs": "score"},
    "bits": {"type": "fc", "outputs": 3, "inputs": "body", "neuron": "logistic"},
    "size": {"type": "sum2", "inputs": "body", "coeff": 0.01},
    "soft": {"type": "crossent", "inputs": ["p", "bits"], "coeff": 0.5},
    "cost": {"type": "logreg", "inputs": ["p", "labels"], "topk": [2]},
    "seen": {"type": "dce", "inputs": ["bits", "labels"], "pos_weight": 2},
}
AUTOENCODER = {
    "data": DATA,
    "code": {"type": "conv", "filters": 3, "size": 3, "pad": 1, "neuron": "softrelu"},
    "back": {"type": "conv", "filters": 2, "size": 3, "pad": 1},
    "difference": {"type": "eltsum", "inputs": ["back", "data"], "coefficients": [1, -1]},
    "cost": {"type": "sum2"},
}


def make(network: Network, **options) -> Engine:
    engine = Engine(network, NumPy(), **{"batch_size": 6, "mean": 127.5, "std": 60.0, "dtype": np.float64, **options})
    engine.initialize()
    return engine


def train(engine: Engine, steps: int = 1, n: int = 6) -> Engine:
    for step in range(steps):
        data = batch(n, engine.network, step)
        engine.train(**data, step=step, rates=rates(engine))
    return engine


def test_all_costs_are_reported():
    engine = train(make(wire(**HEADS)), 2)
    assert engine.results == (
        "size.loss", "soft.loss", "soft.top1_error", "cost.loss", "cost.top1_error", "cost.top2_error",
        "seen.loss", "seen.bit_error", "seen.top1_error",
    )  # fmt: skip
    assert engine.network.main.name == "cost" and engine.network.outputs == 3
    data, again = batch(6, engine.network, 1), make(wire(**HEADS))
    train(again)  # the state in which the second step was made
    p, results = again.evaluate(data["pixels"], data["labels"], data["mirror"])
    assert p is not None and p.shape == (3, 6)
    np.testing.assert_allclose(engine.history(1, 2)[:, 0], results.sum(1), rtol=1e-12)
    np.testing.assert_allclose(results[3], -np.log(p[data["labels"], range(6)]), rtol=1e-12)


def test_parts_of_a_batch_add_up_for_every_cost():
    whole, parts = (train(make(wire(**HEADS), accumulate=n), 2) for n in (1, 3))
    np.testing.assert_allclose(parts.history(0, 2), whole.history(0, 2), rtol=1e-9)
    for found, expected in zip(parts.counts().values(), whole.counts().values(), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_gradients_of_all_costs_together():
    """Targets are constants to them, those of a layer that learns too."""
    checks = Checker(wire(**HEADS), batch=5, mean=127.5, std=60.0).run()
    assert len(checks) == 6 and not {check.name for check in checks if not check.right}


def test_costs_read_through_the_layer_that_they_belong_with():
    """Not where that is a target."""
    network = wire(**HEADS)
    assert network["cost"].inputs == ("score", "labels")
    assert network["soft"].inputs == ("score", "bits.logistic") and network["soft"].layer.logits
    assert network["seen"].inputs == ("bits", "labels")
    other = wire(data=DATA, fc=FC, p={"type": "softmax"}, q={"type": "bce", "inputs": ["fc", "p"]})
    assert other["q"].inputs == ("fc", "p")
    plain = wire(data=DATA, fc=FC, cost={"type": "crossent", "inputs": ["fc", "labels"]})
    assert plain["cost"].inputs[0] == "fc" and not plain["cost"].layer.logits


def test_targets_get_no_gradient():
    """What only feeds targets does not learn, and is left as it is by momentum and decay."""
    layers = {"data": DATA, "fc": FC, "teacher": FC, "q": {"type": "softmax"}}
    engine = make(wire(**layers, cost={"type": "crossent", "inputs": ["fc", "q"], "logits": True}))
    assert engine.trainable == ("fc.weight", "fc.bias")
    before = engine.tensors()
    after = train(engine, 2).tensors()
    assert all((before[name] == after[name]).all() == name.startswith("teacher") for name in before)


def test_a_cost_without_a_coefficient_is_only_reported():
    alone = train(make(wire(data=DATA, fc=FC, cost=LOGREG)), 3)
    aux = {"aux": {**FC, "outputs": 5}, "watch": {"type": "sum2", "inputs": "aux", "coeff": 0}}
    both = train(make(wire(data=DATA, fc=FC, cost=LOGREG, **aux)), 3)
    for name, array in alone.tensors().items():
        np.testing.assert_array_equal(both.tensors()[name], array)
    assert both.results[-1] == "watch.loss" and (both.history(0, 3)[-1] > 0).all()
    assert both.network.watched == {"cost": 0}
    recorded, _ = both.plan("train", 6)
    assert not [step for step in recorded.steps if step.phase == "backward" and step.layer in ("aux", "watch")]


@pytest.mark.parametrize(("kind", "inputs"), [("logreg", ["fc", "labels"]), ("sum2", ["fc"])])
@pytest.mark.parametrize(("coeffs", "main"), [((0, 1), "second"), ((2, 1), "first"), ((1, 0), "first")])
def test_the_main_cost_is_the_first_with_a_gradient(kind, inputs, coeffs, main):
    first, second = ({"type": kind, "inputs": inputs, "coeff": coeff} for coeff in coeffs)
    network = wire(data=DATA, fc=FC, first=first, second=second)
    assert network.main.name == main
    assert network.classifier is (network.main if kind == "logreg" else None)


def test_a_classifier_is_the_main_cost_though_it_only_reports():
    network = wire(data=DATA, fc=FC, size={"type": "sum2", "inputs": "fc"}, cost={**LOGREG, "coeff": 0})
    assert network.main is network.classifier is network["cost"] and network.outputs == 3


def test_only_losses_with_a_coefficient_stop_the_updates():
    for coeff, healthy in ((0, 1), (1e-9, 0)):
        engine = make(wire(data=DATA, fc=FC, cost=LOGREG, far={"type": "sum2", "inputs": "fc", "coeff": coeff}))
        engine.parameters["fc.weight"][...] *= 1e160  # its square overflows, the softmax does not
        train(engine)
        assert np.isinf(engine.history(0, 1)[engine.results.index("far.loss")])
        assert engine.arrays["healthy"][0] == healthy


def test_an_autoencoder_learns_its_images():
    engine = make(wire(**AUTOENCODER))
    assert engine.network.classifier is None and engine.network.outputs == 0
    data = batch(6, engine.network) | {"mirror": np.zeros(6, np.uint8)}
    for step in range(200):
        engine.train(**data, step=step, rates=rates(engine, lr=2e-3))
    losses = engine.history(0, 200)[0]
    assert losses[-1] < 0.3 * losses[0]
    p, results = engine.evaluate(data["pixels"], data["labels"])
    x = (data["pixels"].transpose(3, 1, 2, 0) - 127.5) / 60
    assert p is None and results.shape == (1, 6)
    assert 0.1 * (x**2).sum() > results.sum() > 0


def test_precision_and_recall_are_counted_on_the_device():
    """By hand from the probabilities; training and evaluation are counted apart."""
    network = wire(data=DATA, fc=FC, cost={"type": "dce", "inputs": ["fc", "labels"]})
    engine = make(network)
    data = [batch(n, network, seed) for n, seed in ((6, 1), (4, 2))]
    data[1]["labels"][2] = -1
    expected = np.zeros((3, 3), int)
    for part in data:
        p, _ = engine.evaluate(part["pixels"], part["labels"], part["mirror"])
        hot, known = np.eye(3)[:, part["labels"]] * (part["labels"] >= 0), part["labels"] >= 0
        expected += np.array([((p >= 0.5) & known).sum(1), hot.sum(1), ((p >= 0.5) * hot).sum(1)]).astype(int)
    np.testing.assert_array_equal(engine.counts(evaluated=True)["cost"], expected)
    assert not engine.counts()["cost"].any()
    engine.train(**data[0], step=0, rates=rates(engine))
    assert engine.counts()["cost"][1].sum() == 6
    np.testing.assert_array_equal(engine.counts(evaluated=True)["cost"], expected)


@pytest.mark.parametrize(
    ("cost", "message"),
    [
        ({"type": "logreg", "inputs": ["fc", "one"]}, "expected labels, found layer 'one' of 1x1x1"),
        ({"type": "bce", "inputs": ["fc", "one"]}, "expected labels, or targets of the shape 3x1x1, found layer 'one'"),
        ({"type": "bce", "inputs": ["labels", "one"]}, "the first input of a cost is a layer; expected"),
        ({"type": "sum2", "inputs": "labels"}, "the first input of a cost is a layer; expected"),
        ({"type": "sum2", "inputs": ["fc", "labels"]}, "expected 1 inputs, got 2"),
    ],
)
def test_targets_that_are_none(cost, message):
    layers = {"data": DATA, "fc": FC, "one": {"type": "fc", "outputs": 1, "inputs": "data"}}
    rest = {"a": {"type": "sum2", "inputs": "one"}, "b": {"type": "sum2", "inputs": "fc"}}
    with pytest.raises(ConfigError) as found:
        wire(**layers, **rest, cost=cost)
    assert found.value.message.startswith(message)


def test_names_of_a_lone_cost_and_of_several():
    sums = {"a.b.loss": 6.0, "a.b.top1_error": 1.0, "a.b.top5_error": 0.0}
    lone = Results(tuple(sums), "a.b")
    found = lone.means(sums, 4, {})
    assert found == {"loss": 1.5, "top1_accuracy": 0.75, "top5_accuracy": 1}
    assert lone.phrases({**found, "images": 4}, 10) == ["loss 1.5000", "top-1 75.00%", "top-5 100.00%"]
    assert lone.phrases(found, 5, width=7) == ["loss 1.5000", "top-1  75.00%"]
    assert np.isnan(list(lone.means(dict.fromkeys(sums, 0.0), 0, {}).values())).all()
    several = Results(("aux.loss", "aux.bit_error", "cost.loss"), "cost")
    counts = {"aux": [[2, 0], [4, 1], [1, 0]]}
    found = several.means({"aux.loss": 8.0, "aux.bit_error": 1.0, "cost.loss": 2.0}, 4, counts)
    assert found == {
        "loss": 0.5, "aux.loss": 2, "aux.bit_accuracy": 0.75, "cost.loss": 0.5,
        "aux.precision": [0.5, None], "aux.recall": [0.25, 0.0],
    }  # fmt: skip
    assert several.phrases(found, 2) == [
        "loss 0.5000", "aux.loss 2.0000", "aux.bit 75.00%", "aux.precision 50.00%", "aux.recall 12.50%",
    ]  # fmt: skip


@pytest.fixture
def toy(tmp_path, monkeypatch, capsys):
    """Train the toy with other layers behind its data layer; what was printed."""

    def run(*layers: str, code: int = 0):
        head, rest = CONFIG.split("  conv1:")
        _, tail = rest.split("solver:")
        write_toy(tmp_path, head + "".join(f"  {line}\n" for line in layers) + "solver:" + tail)
        monkeypatch.chdir(tmp_path)
        assert main(["train", "toy.yaml", "--device", "cpu"]) == code
        return "".join(capsys.readouterr())

    return run


def test_a_run_without_classes(toy, capsys):
    """It trains, evaluates, resumes; the best has the lowest loss; there is nothing to predict."""
    out = toy(
        "code: {type: conv, filters: 2, size: 3, pad: 1, neuron: tanh}",
        "back: {type: conv, filters: 1, size: 3, pad: 1}",
        "error: {type: eltsum, inputs: [back, data], coefficients: [1, -1]}",
        "cost: {type: sum2, coeff: 0.001}",
    )
    found = rows("runs/toy", "eval")
    assert all(row.keys() == {"event", "step", "epoch", "loss", "images", "skipped", "seconds"} for row in found)
    best = min(found, key=lambda row: row["loss"])
    assert f"best loss {best['loss']:.4f} at step {best['step']}" in out
    assert find_checkpoint("runs/toy", pytest.fail, best=True).state["step"] == best["step"]
    assert found[-1]["loss"] < found[0]["loss"]
    assert main(["eval", "runs/toy", "--device", "cpu"]) == 0
    assert f"loss {found[-1]['loss']:.4f}, 12 images\n" in "".join(capsys.readouterr())
    assert main(["eval", "runs/toy", "--json", "--device", "cpu"]) == 0
    assert json.loads(capsys.readouterr().out).keys() == {
        "checkpoint", "step", "loss", "images", "skipped", "seconds", "views",
    }  # fmt: skip
    assert main(["predict", "runs/toy", "images/val", "--device", "cpu"]) == 1
    assert "the network is no classifier" in capsys.readouterr().err


def test_a_run_without_classes_needs_one_folder_alone(toy, tmp_path, capsys):
    layers = "back: {type: conv, filters: 1, size: 3, pad: 1}", "cost: {type: sum2, coeff: 0.001}"
    toy(*layers)
    for split in ("train", "val"):
        for name in "bc":
            shutil.rmtree(tmp_path / "images" / split / name)
    assert main(["train", "toy.yaml", "--device", "cpu"]) == 0
    classifier = "  fc1: {type: fc, outputs: 3}\n  cost: {type: logreg, inputs: [fc1, labels]}\nsolver:"
    head, _, tail = Path("toy.yaml").read_text().replace("  back:", "solver:").split("solver:")
    Path("toy.yaml").write_text(head + classifier + tail)
    capsys.readouterr()
    assert main(["train", "toy.yaml", "--device", "cpu"]) == 1
    assert "expected two classes or more, found 'a' alone" in capsys.readouterr().err


@pytest.mark.parametrize("frozen", ["layers.fc1.solver.lr=0", "layers.cost.coeff=0"])
def test_a_run_in_which_nothing_learns_does_not_begin(frozen, tmp_path, monkeypatch, capsys):
    write_toy(tmp_path, CONFIG.replace("  conv1:", "  #").replace("  bn1:", "  #"))
    monkeypatch.chdir(tmp_path)
    assert main(["train", "toy.yaml", "--device", "cpu", frozen]) == 2
    told = "nothing learns: the learning rates of all layers, or the coefficients of all costs, are 0"
    place = next(i for i, line in enumerate(Path("toy.yaml").read_text().splitlines(), 1) if "solver:" in line)
    assert capsys.readouterr().err == f"toy.yaml:{place}:1: solver: {told}\n"
    assert not Path("runs").exists()
    assert main(["summary", "toy.yaml", "--device", "cpu", frozen]) == 0
    capsys.readouterr()
    assert main(["check-grads", "toy.yaml", frozen]) == (2 if "coeff" in frozen else 0)
    assert ("nothing to check" in capsys.readouterr().err) == ("coeff" in frozen)


def test_what_learns_below_a_layer_without_gradient_is_told_with_its_place(tmp_path, monkeypatch, capsys):
    write_toy(tmp_path, CONFIG.replace("bn1: {type: batch_norm, neuron: relu}", "bn1: {type: resize, scale: 0.5}"))
    monkeypatch.chdir(tmp_path)
    place = next(i for i, line in enumerate(Path("toy.yaml").read_text().splitlines(), 1) if "bn1:" in line)
    for command in ("train", "summary", "check-grads"):
        device = [] if command == "check-grads" else ["--device", "cpu"]
        assert main([command, "toy.yaml", *device]) == 2
        told = f"toy.yaml:{place}:3: layer 'bn1': no gradient passes a resize layer, but layer 'conv1' below it learns;"
        assert capsys.readouterr().err.startswith(told)
    assert not Path("runs").exists()


def test_a_run_with_two_costs(toy, capsys):
    out = toy(
        "fc1: {type: fc, outputs: 3}",
        "aux: {type: dce, inputs: [fc1, labels], coeff: 0.5}",
        "p: {type: softmax, inputs: fc1}",
        "cost: {type: crossent, inputs: [p, labels]}",
    )
    (row, *_), found = rows("runs/toy", "train"), rows("runs/toy", "eval")
    keys = {"loss", "bit_accuracy", "top1_accuracy", "precision", "recall"}
    assert {f"aux.{key}" for key in keys} | {"cost.loss", "cost.top1_accuracy"} | keys <= row.keys()
    assert row["loss"] == row["aux.loss"] and len(row["precision"]) == 3
    assert "  cost.loss " in out and "  precision " in out
    last = found[-1]
    assert main(["eval", "runs/toy", "--json", "--device", "cpu"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert all(report[key] == last[key] for key in ("loss", "cost.loss", "precision", "recall"))
    confusion, shares = np.array(report["confusion"]), report["recall"]
    assert confusion.sum() == 12 and len(shares) == 3
    assert main(["eval", "runs/toy", "--json", "--views", "10", "--device", "cpu"]) == 0
    assert np.isfinite(json.loads(capsys.readouterr().out)["cost.loss"])


@pytest.mark.parametrize(
    ("outputs", "cost"), [(2, "logreg"), (4, "logreg"), (1, "bce")], ids=["too few", "too many", "one for two"]
)
def test_each_cost_of_labels_has_an_output_for_every_class(toy, outputs, cost):
    told = toy(
        "fc1: {type: fc, outputs: 3}",
        "first: {type: logreg, inputs: [fc1, labels]}",
        f"fc2: {{type: fc, outputs: {outputs}, inputs: data}}",
        f"second: {{type: {cost}, inputs: [fc2, labels], coeff: 0.3}}",
        code=2,
    )
    assert f"layer 'fc2': expected 3 outputs, one for each class of 'images/train', found {outputs}" in told
    assert not Path("runs").exists()


def test_one_output_is_enough_for_two_classes(toy, tmp_path):
    layers = "fc1: {type: fc, outputs: 1}", "cost: {type: bce, inputs: [fc1, labels]}"
    assert "found 1" in toy(*layers, code=2)
    for split in ("train", "val"):
        shutil.rmtree(tmp_path / "images" / split / "c")
    assert main(["train", "toy.yaml", "--device", "cpu"]) == 0


def test_the_cost_whose_loss_is_no_number_is_named(toy):
    err = toy(
        "fc1: {type: fc, outputs: 3}",
        "far: {type: neuron, kind: linear, a: 1e+30, b: 0}",
        "size: {type: sum2}",
        "cost: {type: logreg, inputs: [fc1, labels]}",
        code=1,
    )
    assert "step 1 (epoch 1): the loss of 'size' is inf; the first NaN or infinity is in 'size' of layer 'size'" in err
    assert not list(Path("runs/toy/checkpoints").glob("step-*"))
