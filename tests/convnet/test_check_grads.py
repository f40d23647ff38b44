"""check-grads at the kinks of ReLUs and maxima: it steps between them, and says where it cannot."""

import re
from pathlib import Path

import pytest

from convnet.cli import main
from convnet.config import load_config
from convnet.graph.check_grads import Checker, report
from convnet.session import make_network
from kernels import cost, neuron, pool
from tests.convnet.toy import CONFIG

ROOT = Path(__file__).parents[2]
README = re.findall(r"```yaml\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)[0]
# Those for 224 x 224 pixels take minutes each; they consist of the same layers.
SMALL = (path.relative_to(ROOT / "configs") for path in (ROOT / "configs").rglob("*.yaml"))
SHIPPED = sorted(path.as_posix() for path in SMALL if path.parts[0] != "imagenet")


def checks_of(file, *overrides):
    config = load_config(file, overrides)
    return Checker(make_network(config), seed=config.seed, mean=config.data.mean, std=config.data.std).run()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("toy.yaml").write_text(CONFIG)


@pytest.mark.parametrize("seed", range(1, 9))
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_configs_are_right(name, seed):
    checks = checks_of(ROOT / "configs" / name, f"seed={seed}")
    assert all(check.right for check in checks), report(checks)


@pytest.mark.parametrize("seed", range(1, 9))
def test_the_network_of_the_readme_is_right(seed, tmp_path):
    (tmp_path / "photos.yaml").write_text(README, "utf-8")
    checks = checks_of(tmp_path / "photos.yaml", f"seed={seed}")
    assert all(check.right for check in checks), report(checks)


@pytest.mark.parametrize("op", [neuron.BACKWARD, pool.MAX_BACKWARD])
@pytest.mark.parametrize("std", [0.1, 1e-6])
def test_a_slightly_wrong_gradient_is_wrong_and_no_kink(op, std, toy, monkeypatch):
    right = op.reference

    def wrong(*arguments):
        right(*arguments)
        arguments[-2][...] *= 1.001  # dx, before beta

    monkeypatch.setattr(op, "reference", wrong)
    for seed in range(5):
        checks = checks_of("toy.yaml", f"layers.fc1.init={{type: gaussian, std: {std}}}", f"seed={seed}")
        assert [check.name for check in checks if check.wrong] == ["conv1.weight", "bn1.weight", "bn1.bias"]
        assert not any(check.kink for check in checks), report(checks)


def test_weights_on_a_kink_are_told_apart_from_wrong_gradients(toy, capsys):
    """With weights of 0 every input of the ReLU is 0, where its slope is 0 on one side and 1 on the other."""
    relu = "relu: {type: neuron, kind: relu}"
    Path("toy.yaml").write_text(CONFIG.replace("bn1: {type: batch_norm, neuron: relu}", relu))
    assert main(["check-grads", "toy.yaml", "layers.conv1.init={type: constant, value: 0}"]) == 0
    *rows, kinks, verdict = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows if row.endswith("kink")] == ["conv1.weight", "conv1.bias"]
    assert kinks == "2 of 4 not comparable: the initial weights lie on a kink of the loss" and verdict == "none wrong"


def test_a_gradient_that_is_inexact_by_design_is_not_wrong(toy, capsys):
    norm = "norm: {type: cnorm, size: 3, scale: 1, exact: false}\n  conv2: {type: conv, filters: 3, size: 1}"
    Path("toy.yaml").write_text(CONFIG.replace("drop1: {type: dropout, keep: 0.8}", norm))
    assert main(["check-grads", "toy.yaml"]) == 0
    *rows, inexact, verdict = capsys.readouterr().out.splitlines()
    assert [row.split()[0] for row in rows if row.endswith("inexact")] == ["conv1.weight", "bn1.weight", "bn1.bias"]
    assert inexact == "3 of 8 inexact by design: they lie below a layer with exact: false" and verdict == "none wrong"
    assert main(["check-grads", "toy.yaml", "layers.norm.exact=true"]) == 0
    assert "inexact" not in capsys.readouterr().out


ZERO = """
data: {train: {type: folder, path: x}}
layers:
  data: {type: data, size: 4}
  fc: {type: fc, outputs: 3}
  p: {type: softmax}
  cost: {type: crossent, inputs: [p, p]}
train: {batch_size: 3, epochs: 1}
"""


@pytest.fixture
def itself(tmp_path):
    """A cost of its input against itself, of which the gradient is 0; the loss is curved there."""
    (tmp_path / "zero.yaml").write_text(ZERO)
    network = make_network(load_config(tmp_path / "zero.yaml"))
    # Pixels of 0 to 255 take the softmax to its bounds, where the loss is 0.
    return [Checker(network, batch=3, seed=seed, std=std) for std in (1, 60, 255) for seed in range(1, 6)]


def test_a_gradient_of_zero_is_right(itself):
    for checks in (checker.run() for checker in itself):
        assert all(abs(check.gradient) < 1e-11 for check in checks)
        assert all(check.right for check in checks), report(checks)


@pytest.mark.parametrize("error", [1e-8, 1e-4])
def test_another_gradient_where_it_should_be_zero_is_wrong(error, itself, monkeypatch):
    right = cost.CROSSENT_LOGITS_BACKWARD.reference

    def wrong(*arguments):
        right(*arguments)
        arguments[-2][0] += error  # dx, before beta

    monkeypatch.setattr(cost.CROSSENT_LOGITS_BACKWARD, "reference", wrong)
    for checks in (checker.run() for checker in itself):
        assert all(check.wrong for check in checks), report(checks)


def test_no_gradient_where_there_should_be_one_is_wrong(toy, monkeypatch):
    right = pool.MAX_BACKWARD.reference

    def nothing(*arguments):
        right(*arguments)
        arguments[-2][...] = 0

    monkeypatch.setattr(pool.MAX_BACKWARD, "reference", nothing)
    checks = checks_of("toy.yaml", "layers.fc1.init={type: gaussian, std: 1e-6}")
    assert [check.name for check in checks if check.wrong] == ["conv1.weight", "bn1.weight", "bn1.bias"]
