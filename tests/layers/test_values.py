"""Values that other tools give for the same layer: by them people recognise the definition."""

import numpy as np
import pytest

from layers.batch_norm import BatchNorm
from layers.cmrnorm import Cmrnorm
from layers.conv import Conv
from layers.data import Data
from layers.dropout import Dropout
from layers.join import Concat, Eltsum
from layers.logreg import Logreg
from layers.pool import Pool
from tests.layers.cases import case
from tests.layers.harness import make_feed, run


def apply(layer, *xs, how=None, **given):
    """What the layer leaves for inputs [C, H, W, N], with `given` in the place of random parameters and states."""
    row = case(layer, *(x.shape[:3] for x in xs), batch=xs[0].shape[-1])
    feed = make_feed(row) | {f"x{i}": x for i, x in enumerate(xs)} | {f"a.{k}": v for k, v in given.items()}
    return run(row, feed, **(how or {}))


def features(*rows):
    """[C, 1, 1, N] of a row per channel."""
    return np.array(rows, float)[:, None, None]


def windows(layer, x):
    """(p, q, patch [C, R, S, N]) of a layer's rectangular windows; zeros outside of x."""
    (pad_h, pad_w), (rows, cols), (step_h, step_w) = layer.pad, layer.size, layer.stride
    wide = np.pad(x, ((0, 0), (pad_h, pad_h + rows), (pad_w, pad_w + cols), (0, 0)))
    height, width = (x.shape[1] + 2 * pad_h - rows) // step_h + 1, (x.shape[2] + 2 * pad_w - cols) // step_w + 1
    for p, q in np.ndindex(height, width):
        h, w = p * step_h, q * step_w
        yield p, q, wide[:, h : h + rows, w : w + cols]


WINDOW = {"size": (2, 3), "stride": (3, 2), "pad": (0, 1)}


def test_convolution_of_rectangles():
    layer = Conv(filters=4, groups=2, **WINDOW)
    row = case(layer, (6, 5, 8), batch=3)
    feed = make_feed(row)
    w, b, y = feed["a.weight"], feed["a.bias"], run(row, feed)["a.y"]
    for p, q, patch in windows(layer, feed["x0"]):
        for f in range(4):
            seen = patch[3 * (f // 2) : 3 * (f // 2) + 3]
            np.testing.assert_allclose(y[f, p, q], (seen * w[f, ..., None]).sum((0, 1, 2)) + b[f], rtol=1e-12)


@pytest.mark.parametrize("mode", ["max", "avg"])
def test_pooling_of_rectangles(mode):
    layer = Pool(mode=mode, count_pad=mode == "avg", **WINDOW)
    row = case(layer, (2, 5, 8), batch=3)
    feed = make_feed(row)
    feed["x0"] = np.abs(feed["x0"])  # so that a zero of the padding is no maximum
    y = run(row, feed)["a.y"]
    for p, q, patch in windows(layer, feed["x0"]):
        np.testing.assert_allclose(y[:, p, q], getattr(np, mode if mode == "max" else "mean")(patch, (1, 2)))


def test_response_normalisation_of_the_paper():
    x = make_feed(case(Cmrnorm(size=3), (5, 1, 1), batch=1))["x0"]
    y = apply(Cmrnorm(size=3, scale=0.3, pow=0.5, min_div=2, divide=False), x)["a.y"].ravel()
    squares = np.pad(x.ravel() ** 2, 1)
    np.testing.assert_allclose(y, x.ravel() / np.sqrt(2 + 0.3 * (squares[:-2] + squares[1:-1] + squares[2:])))


@pytest.mark.parametrize("divide, middle, first", [(True, 43.8691, 48.8394), (False, 23.2368, 29.9070)])
def test_response_normalisation_in_both_forms(divide, middle, first):
    norm = Cmrnorm(size=5, scale=1e-4, pow=0.75, min_div=2, divide=divide)
    y = apply(norm, np.full((5, 1, 1, 1), 100.0))["a.y"].ravel()
    assert y[2] == pytest.approx(middle, abs=1e-4)
    # at the edge three maps are summed, and the divisor stays 5: 100 / (2 + 3 / 5)^0.75
    assert y[0] == y[4] == pytest.approx(first, abs=1e-4)


def test_convolution_is_a_correlation():
    x = np.arange(9.0).reshape(1, 3, 3, 1)
    kernel = np.array([[1.0, 2], [3, 4]]).reshape(1, 1, 2, 2)
    y = apply(Conv(filters=1, size=2), x, weight=kernel, bias=np.array([0.5]))["a.y"]
    np.testing.assert_array_equal(y[0, :, :, 0], [[27.5, 37.5], [57.5, 67.5]])


def test_average_with_and_without_the_padding():
    x = np.ones((1, 2, 2, 1))
    window = {"mode": "avg", "size": 2, "stride": 1, "pad": 1}
    assert (apply(Pool(**window), x)["a.y"] == 1).all()
    y = apply(Pool(**window, count_pad=True), x)["a.y"][0, :, :, 0]
    np.testing.assert_array_equal(y, [[0.25, 0.5, 0.25], [0.5, 1, 0.5], [0.25, 0.5, 0.25]])


def test_the_first_of_equal_maxima_gets_the_gradient():
    dx = apply(Pool(size=2), np.zeros((1, 2, 2, 1)), dy=np.full((1, 1, 1, 1), 3.0))["dx0"]
    np.testing.assert_array_equal(dx[0, :, :, 0], [[3, 0], [0, 0]])


def test_batch_normalisation_and_its_running_statistics():
    given = {"weight": [2.0], "bias": [1.0], "running_mean": [0.0], "running_var": [1.0]}
    after = apply(BatchNorm(eps=0.5, momentum=0.2), features([1, 2, 3, 4]), **given)
    expected = 1 + 2 * (np.array([1, 2, 3, 4]) - 2.5) / np.sqrt(1.25 + 0.5)
    np.testing.assert_allclose(after["a.y"].ravel(), expected)
    assert after["a.running_mean"] == pytest.approx(0.5)
    assert after["a.running_var"] == pytest.approx(0.8 + 0.2 * 5 / 3)  # the unbiased variance


def test_batch_normalisation_of_a_single_value():
    after = apply(BatchNorm(), features([7]), weight=[2.0], bias=[1.0], running_mean=[0.0], running_var=[1.0])
    assert after["a.y"] == 1 and after["dx0"] == 0
    assert after["a.running_mean"] == pytest.approx(0.7) and after["a.running_var"] == pytest.approx(0.9)


def test_batch_normalisation_in_evaluation_uses_the_running_statistics_and_keeps_them():
    given = {"weight": [2.0], "bias": [1.0], "running_mean": [3.0], "running_var": [4.0]}
    after = apply(BatchNorm(), features([1, 5]), how={"training": False}, **given)
    np.testing.assert_allclose(after["a.y"].ravel(), [-1, 3], rtol=1e-5)
    assert after["a.running_mean"] == 3 and after["a.running_var"] == 4


def test_dropout_keeps_its_share_and_the_expectation():
    x = np.ones((40, 10, 10, 5))
    y = apply(Dropout(keep=0.8), x)["a.y"]
    assert set(np.unique(y)) == {0, 1.25}
    assert (y != 0).mean() == pytest.approx(0.8, abs=0.01)
    np.testing.assert_array_equal(apply(Dropout(keep=1), x)["a.y"], x)
    np.testing.assert_array_equal(apply(Dropout(keep=0.8), x, how={"training": False})["a.y"], x)


def test_dropout_differs_between_layers_steps_and_seeds_and_repeats():
    row = case(Dropout(), (30, 4, 4))
    feed = make_feed(row, names=("a", "b"))
    both = run(row, feed, names=("a", "b"))
    masks = [both["a.y"], both["b.y"]]
    for clock in ([17, 1, 4, 6], [18, 1, 3, 6], [17, 2, 3, 6]):
        masks.append(run(row, feed | {"clock": np.array(clock)})["a.y"])
    zero = np.array([mask.ravel() == 0 for mask in masks])
    assert np.abs(np.corrcoef(zero) - np.eye(5)).max() < 0.1
    np.testing.assert_array_equal(run(row, feed)["a.y"], both["a.y"])


def test_sum_and_concatenation():
    a, b = features([1, 2], [3, 4]), features([10, 20], [30, 40])
    np.testing.assert_array_equal(apply(Eltsum(coefficients=(2, -1)), a, b)["a.y"], 2 * a - b)
    np.testing.assert_array_equal(apply(Concat(), a, b)["a.y"], np.concatenate([a, b]))


def test_pixels_are_mirrored_and_scaled():
    row = case(Data(channels=2, size=(1, 3)), batch=2)
    pixels = np.array([[[0, 10], [1, 20], [2, 30]], [[0, 10], [1, 20], [2, 30]]])[:, None]
    given = {"pixels": pixels, "mirror": np.array([0, 1]), "mean": np.array([1.0, 10]), "std": np.array([1.0, 10])}
    y = run(row, make_feed(row) | given)["a.y"]
    np.testing.assert_array_equal(y[..., 0], [[[-1, 0, 1]], [[0, 1, 2]]])
    np.testing.assert_array_equal(y[..., 1], [[[1, 0, -1]], [[2, 1, 0]]])


def score(logits, labels, **options):
    """[3, N]: loss, top-1 error and top-k error of logits [K, N]."""
    logits = np.array(logits, float)
    row = case(Logreg(**options), (len(logits),), (1,), batch=logits.shape[1], frozen=("x1",))
    return run(row, {"x0": logits[:, None, None], "x1": np.array(labels)})["a.y"][:, 0, 0]


def test_cross_entropy():
    logits = [[1.0, 1], [2, 2], [3, 3]]
    np.testing.assert_allclose(score(logits, [2, 0])[0], [0.407606, 2.407606], atol=1e-6)
    np.testing.assert_allclose(score(logits, [2, 0], smoothing=0.1)[0], [0.507606, 2.307606], atol=1e-6)
    np.testing.assert_allclose(score(np.zeros((1000, 1)), [5])[0], np.log(1000))


def test_error_rates_and_unlabeled_samples():
    logits = np.tile([[4.0], [3], [2], [1]], 5)
    y = score(logits, [0, 1, 2, 3, -1], topk=2)
    np.testing.assert_array_equal(y[1], [0, 1, 1, 1, 0])
    np.testing.assert_array_equal(y[2], [0, 0, 1, 1, 0])
    assert y[0, 4] == 0
    np.testing.assert_array_equal(score(logits, [3] * 5, topk=9)[2], 0)  # all classes are among the first nine
