"""Each layer's backward against central differences of its forward, in float64, along random directions."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from layers.neuron import Neuron
from tests.layers.cases import CASES, Case, case
from tests.layers.harness import derivative, make_feed, objective, run

NAMES = ("a", "b")


def targets(row: Case) -> list[str]:
    """The inputs and parameters that have a gradient, as a feed names them."""
    inputs = [f"x{i}" for i in range(len(row.inputs))]
    params = [f"a.{key}" for key in row.layer.params(*row.inputs)]
    return [name for name in inputs + params if name.removeprefix("a.") not in row.frozen]


def gradient_of(name: str) -> str:
    return f"d{name}" if name.startswith("x") else f"d {name}"


def check(row: Case, name: str) -> None:
    """Compare on the first random feed where the layer is smooth along the direction."""
    for seed in range(20):
        feed = make_feed(row, seed)
        direction = np.random.default_rng(seed + 1000).normal(size=feed[name].shape)
        direction /= np.linalg.norm(direction)

        def along(t, feed=feed, direction=direction):
            return objective(row, {**feed, name: feed[name] + t * direction})

        numeric = derivative(along)
        if numeric is not None:
            break
    assert numeric is not None, f"{row}: no smooth point found for {name}"
    gradient = run(row, feed)[gradient_of(name)]
    assert (gradient * direction).sum() == pytest.approx(numeric, rel=1e-6, abs=1e-6 * np.linalg.norm(gradient) + 1e-9)


@pytest.mark.parametrize("row, name", [pytest.param(c, n, id=f"{c}-{n}") for c in CASES for n in targets(c)])
def test_gradient(row, name):
    check(row, name)


@pytest.mark.parametrize("row, name", [pytest.param(c, n, id=f"{c}-{n}") for c in CASES for n in targets(c)])
def test_a_frozen_input_or_parameter_gets_no_gradient_and_changes_no_other(row, name):
    feed = make_feed(row)
    free = run(row, feed)
    frozen = run(replace(row, frozen=row.frozen | {name.removeprefix("a.")}), feed)
    left = {n for n in targets(row) if n != name}
    assert {n for n in frozen if n.startswith("d")} == {gradient_of(n) for n in left}
    for n in left:
        np.testing.assert_array_equal(frozen[gradient_of(n)], free[gradient_of(n)])


@pytest.mark.parametrize("row", [c for c in CASES if "x0" in targets(c)], ids=str)
def test_layers_that_read_one_input_add_their_gradients(row):
    feed = make_feed(row, names=NAMES)
    both = run(row, feed, names=NAMES)
    alone = [run(row, feed, names=(name,)) for name in NAMES]
    for name in ("dx0", "dx1"):
        if name in both:
            np.testing.assert_allclose(both[name], alone[0][name] + alone[1][name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "row", [c for c in CASES if len(c.inputs) > 1 and len(set(c.inputs)) == 1 and not c.frozen], ids=str
)
def test_an_input_used_twice_gets_both_gradients(row):
    feed = make_feed(row)
    apart = run(row, {**feed, **{f"x{i}": feed["x0"] for i in range(len(row.inputs))}})
    tied = run(row, feed, tied=True)
    np.testing.assert_array_equal(tied["a.y"], apart["a.y"])
    total = sum(apart[f"dx{i}"] for i in range(len(row.inputs)))
    np.testing.assert_allclose(tied["dx0"], total, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("row", [c for c in CASES if any(n.startswith("a.") for n in targets(c))], ids=str)
def test_parameter_gradients_accumulate(row):
    feed, rng = make_feed(row), np.random.default_rng(3)
    once = run(row, feed)
    held = {name: rng.normal(size=once[name].shape) for name in once if name.startswith("d ")}
    more = run(row, {**feed, **held}, accumulate=True)
    for name, array in held.items():
        np.testing.assert_allclose(more[name], once[name] + array, rtol=1e-12, atol=1e-12)
    if "dx0" in once:
        np.testing.assert_array_equal(more["dx0"], once["dx0"])


def test_the_derivative_is_exact_to_ten_digits_and_notices_kinks():
    assert derivative(lambda t: np.exp(2 * t)) == pytest.approx(2, rel=1e-10)
    assert derivative(lambda t: 5.0) == 0
    assert derivative(abs) is None
    assert derivative(lambda t: max(0.0, t - 1.3e-4)) is None
    assert derivative(lambda t: max(0.0, t - 1)) == 0


def test_a_wrong_gradient_is_found():
    @dataclass(frozen=True)
    class Wrong(Neuron):
        def backward(self, emit, xs, y, dy, dxs):
            super().backward(emit, xs, xs[0], dy, dxs)  # the derivative is a function of y, not of x

    with pytest.raises(AssertionError):
        check(case(Wrong(kind="tanh"), (2, 3, 3)), "x0")
