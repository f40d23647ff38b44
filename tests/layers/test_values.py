"""Values that other tools give for the same layer: by them people recognise the definition."""

import numpy as np
import pytest

from layers.batch_norm import BatchNorm
from layers.cmrnorm import Cmrnorm
from layers.colour import Rgb2lab, Rgb2yuv
from layers.conv import Conv
from layers.costs import Bce, Crossent, Sum2
from layers.data import Data
from layers.dropout import Dropout
from layers.fc import Sfc
from layers.image import Blur, Crop, Href, Nailbed
from layers.join import Concat, Eltsum, Pass
from layers.logreg import Logreg
from layers.neuron import Neuron
from layers.pool import GlobalPool, Pool
from layers.resize import Resize, Rscale
from layers.sum import Sum
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


def row(*values):
    """[1, 1, W, 1]: one map of one row."""
    return np.array(values, float)[None, None, :, None]


def test_largest_absolute_value_and_sum():
    x = row(1, -5, 3, 2, -2, 1)
    window = {"size": (1, 3), "start": (0, -1), "stride": (1, 2), "rounding": "convnet"}
    after = apply(Pool(mode="maxabs", **window), x, dy=row(1, 10, 100))
    np.testing.assert_array_equal(after["a.y"].ravel(), [-5, -5, 2])  # of 2 and -2 the first
    np.testing.assert_array_equal(after["dx0"].ravel(), [0, 11, 0, 100, 0, 0])
    after = apply(Pool(mode="sum", **window), x, dy=row(1, 10, 100))
    np.testing.assert_array_equal(after["a.y"].ravel(), [-4, 0, 1])
    np.testing.assert_array_equal(after["dx0"].ravel(), [1, 11, 10, 110, 100, 100])
    np.testing.assert_array_equal(apply(Pool(mode="avg", **window), x)["a.y"].ravel(), [-2, 0, 1 / 3])


def test_a_start_within_the_map_drops_pixels():
    after = apply(Pool(size=2, start=1), np.arange(25.0).reshape(1, 5, 5, 1), dy=np.ones((1, 2, 2, 1)))
    np.testing.assert_array_equal(after["a.y"][0, :, :, 0], [[12, 14], [22, 24]])
    assert not after["dx0"][0, 0].any() and not after["dx0"][0, :, 0].any()


def test_a_window_larger_than_the_map():
    y = apply(Pool(mode="avg", size=4, rounding="ceil"), np.arange(6.0).reshape(1, 2, 3, 1))["a.y"]
    assert y.shape == (1, 1, 1, 1) and y == 2.5


@pytest.mark.parametrize("mode, expected", [("avg", -1 / 3), ("max", 3), ("maxabs", -4), ("sum", -2)])
def test_global_pooling(mode, expected):
    x = np.array([[0, 3, -4], [1, -2, 0]], float)[None, ..., None]
    np.testing.assert_allclose(apply(GlobalPool(mode=mode), x)["a.y"], [[[[expected]]]], rtol=1e-15)


def test_crop_and_reflection():
    x, dy = np.arange(12.0).reshape(1, 3, 4, 1), np.array([[1.0, 2], [3, 4]])[None, ..., None]
    after = apply(Crop(start=(1, 2), size=2), x, dy=dy)
    np.testing.assert_array_equal(after["a.y"][0, :, :, 0], [[6, 7], [10, 11]])
    np.testing.assert_array_equal(after["dx0"][0, :, :, 0], [[0, 0, 0, 0], [0, 0, 1, 2], [0, 0, 3, 4]])
    np.testing.assert_array_equal(apply(Href(), x)["a.y"], x[:, :, ::-1])


@pytest.mark.parametrize(
    "side, stride, taken", [(6, 2, [1, 3, 5]), (5, 2, [0, 2, 4]), (7, 3, [0, 3, 6]), (12, 4, [2, 6, 10]), (3, 5, [1])]
)
def test_a_nailbed_is_centred(side, stride, taken):
    after = apply(Nailbed(stride=(1, stride)), row(*range(side)), dy=row(*range(1, len(taken) + 1)))
    np.testing.assert_array_equal(after["a.y"].ravel(), taken)
    expected = np.zeros(side)
    expected[taken] = np.arange(1, len(taken) + 1)
    np.testing.assert_array_equal(after["dx0"].ravel(), expected)


def test_blur_spreads_a_pixel_and_loses_what_leaves_the_map():
    x = np.zeros((1, 5, 5, 2))
    x[0, 2, 2, 0] = x[0, 0, 4, 1] = 1
    y = apply(Blur(size=3, stdev=1), x)["a.y"]
    taps = np.array([0.274069, 0.451863, 0.274069])  # exp(-1/2) and 1, over their sum
    np.testing.assert_allclose(y[0, 1:4, 1:4, 0], np.outer(taps, taps), atol=1e-6)
    np.testing.assert_allclose(y[0, :2, 3:, 1], np.outer(taps[1:], taps[:2]), atol=1e-6)
    assert y[..., 0].sum() == pytest.approx(1) and np.count_nonzero(y[..., 0]) == 9


@pytest.mark.parametrize(
    "scale, expected",
    [
        (2, [0, 2]),
        (0.5, [0, 0.5, 1, 1.5, 2, 2.5, 2.99, 2.99]),  # 1.01 pixels from the end at most
        (1.25, [0.125, 1.375, 2.625]),  # the centres meet: 2 - 3 / 2 * 1.25
        (1, [0, 1, 2, 2.99]),
    ],
)
def test_where_resize_looks(scale, expected):
    y = apply(Resize(scale=scale), np.arange(4.0)[None, :, None, None] + 10 * row(0, 1, 2, 3), how={"backward": False})
    at = np.array(expected)
    np.testing.assert_allclose(y["a.y"][0, :, :, 0], at[:, None] + 10 * at, rtol=1e-6)


def shrunk(step=6, size=5, training=True, max_scale=2):
    """What a rscale layer makes of a 9 x 9 map that holds 1, row and column: so y says where it looked."""
    h, w = np.mgrid[:9, :9].astype(float)
    clock = np.array([17, 1, step, 0])
    layer = Rscale(max_scale=max_scale, size=size)
    feed = {"clock": clock, "x0": np.stack([np.ones_like(h), h, w])[..., None]}
    table_row = case(layer, (3, 9, 9), batch=1, frozen=("x0",))
    return run(table_row, make_feed(table_row) | feed, training=training)["a.y"][..., 0]


def test_random_scales_have_the_probabilities_and_ranges_of_their_crops():
    sizes, corners = [], {size: set() for size in range(5, 10)}
    for step in range(600):
        one, rows, columns = shrunk(step)
        np.testing.assert_allclose(one, 1)
        scale = rows[1, 0] - rows[0, 0]
        for steps in (np.diff(rows, axis=0)[:3], np.diff(columns)[:, :3]):  # the last pixel may be clamped
            np.testing.assert_allclose(steps, scale, atol=1e-9)
        size = 9 if abs(scale - 1) < 1e-9 else int(9 / scale)
        assert max(1, 9 / (size + 1)) - 1e-9 <= scale <= 9 / size + 1e-9
        first = (rows[1, 0] - scale - 4.5) / scale + size / 2, (columns[0, 1] - scale - 4.5) / scale + size / 2
        sizes.append(size)
        corners[size].add(tuple(np.round(first, 6)))
    share = np.bincount(sizes, minlength=10)[5:] / 600
    expected = np.array([1, 4, 9, 16, 25]) / 55
    assert (np.abs(share - expected) < 5 * np.sqrt(expected / 600)).all(), share
    for size, places in corners.items():
        assert places <= {(a, b) for a in range(size - 4) for b in range(size - 4)}
    assert len(corners[9]) == 25  # all places of the largest size occur


def test_a_random_scale_of_one_is_a_crop():
    whole = [shrunk(step, size=8, max_scale=1.1) for step in range(20)]
    crops = [y for y in whole if np.diff(y[1, :, 0])[0] == 1]
    assert len(crops) > 5
    for _, rows, columns in crops:
        np.testing.assert_array_equal(rows, rows[0, 0] + np.arange(8)[:, None] + np.zeros(8))
        np.testing.assert_array_equal(columns, columns[0, 0] + np.arange(8) + np.zeros((8, 1)))


def test_a_random_scale_is_drawn_anew_for_each_step_and_not_in_evaluation():
    assert len({shrunk(step).tobytes() for step in range(10)}) > 5
    np.testing.assert_array_equal(shrunk(3), shrunk(3))
    y = shrunk(training=False, size=6, max_scale=1.5)
    np.testing.assert_array_equal(y, shrunk(step=9, training=False, size=6, max_scale=1.5))
    np.testing.assert_allclose(y[1, :, 0], [0, 1.5, 3, 4.5, 6, 7.5])
    np.testing.assert_allclose(shrunk(training=False, size=8)[2, 0], 1.125 * np.arange(8))  # no more than the map has


@pytest.mark.parametrize(
    "layer, rgb, expected",
    [
        (Rgb2yuv(), (1, 1, 1), (1, 0, 0)),
        (Rgb2yuv(), (1, 0, 0), (0.2126, -0.09991, 0.615)),
        (Rgb2yuv(), (0, 0, 2), (0.1444, 0.872, -0.11278)),
        (Rgb2lab(), (1, 1, 1), (100, 0, 0)),
        (Rgb2lab(), (0, 0, 0), (0, 0, 0)),
        (Rgb2lab(center=True), (1, 1, 1), (50, 0, 0)),
        (Rgb2lab(), (0.5, 0.5, 0.5), (76.07139, 0, 0)),  # 116 * 0.5^0.3333 - 16
        (Rgb2lab(), (0, 1, 0), (92.2391, -128.14, 143.524)),  # of fX = .676816, fY = .933096, fZ = .215476
    ],
)
def test_colours(layer, rgb, expected):
    y = apply(layer, features(*([value] for value in rgb)), how={"backward": False})["a.y"].ravel()
    np.testing.assert_allclose(y, expected, atol=1e-4 if max(map(abs, expected)) < 120 else 0.01)


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


def test_parts_of_a_split_layer():
    """Features 1, 2 and 3, 4 with rows of weights for either half."""
    weight = np.array([[1.0, 0], [1, 1], [10, 0], [10, 10]])
    x = np.arange(1.0, 5).reshape(1, 2, 2, 1)
    y = apply(Sfc(outputs=2, parts=2), x, weight=weight, bias=np.array([0, 0, 0.5, 0.5]))["a.y"].ravel()
    np.testing.assert_array_equal(y, [1, 3, 30.5, 70.5])


def test_sum_of_each_map():
    after = apply(Sum(), np.arange(12.0).reshape(2, 2, 3, 1), dy=features([3.0], [4.0]))
    np.testing.assert_array_equal(after["a.y"].ravel(), [15, 51])
    np.testing.assert_array_equal(after["dx0"].ravel(), [3] * 6 + [4] * 6)


def test_dropout_scaled_in_evaluation():
    x = np.ones((40, 10, 10, 5))
    plain, after = apply(Dropout(keep=0.8), x), apply(Dropout(keep=0.8, scale="eval"), x)
    np.testing.assert_array_equal(after["a.y"], plain["a.y"] != 0)
    np.testing.assert_allclose(after["dx0"], 0.8 * plain["dx0"])
    y = apply(Dropout(keep=0.8, scale="eval"), x, how={"training": False})["a.y"]
    np.testing.assert_allclose(y, 0.8)


@pytest.mark.parametrize(
    "kind, expected",
    [
        ("ident", [-2, -0.5, 0, 1, 5]),
        ("relu", [0, 0, 0, 1, 5]),
        ("brelu[2]", [0, 0, 0, 1, 2]),
        ("softrelu", [0.126928, 0.474077, 0.693147, 1.313262, 5]),
        ("logistic", [0.119203, 0.377541, 0.5, 0.731059, 0.993307]),
        ("tanh[1.7159,0.6667]", [-1.492967, -0.551709, 0, 1.000035, 1.711540]),
        ("abs", [2, 0.5, 0, 1, 5]),
        ("square", [4, 0.25, 0, 1, 25]),
        ("linear[3,-1]", [-7, -2.5, -1, 2, 14]),
        ("log[3]", [0, 0.916291, 1.098612, 1.386294, 2.079442]),
        ("drelu[2]", [-0.476812, -0.010163, 0, 0.075766, 3.026772]),
    ],
)
def test_neurons(kind, expected):
    y = apply(Neuron(kind=kind), features([-2, -0.5, 0, 1, 5]))["a.y"]
    np.testing.assert_allclose(y.ravel(), expected, atol=1e-6)
    assert apply(Neuron(kind="sqrt"), features([9, 0.25]))["a.y"].ravel().tolist() == [3, 0.5]


def test_slopes_at_corners():
    given = {"dy": np.ones((1, 1, 1, 3))}
    slopes = {
        kind: apply(Neuron(kind=kind), features([-1, 0, 2]), **given)["dx0"].ravel().tolist()
        for kind in ("relu", "abs", "brelu[2]")
    }
    assert slopes == {"relu": [0, 0, 1], "abs": [-1, -1, 1], "brelu[2]": [0, 0, 0]}


def test_sum_and_concatenation():
    a, b = features([1, 2], [3, 4]), features([10, 20], [30, 40])
    np.testing.assert_array_equal(apply(Pass(), a)["a.y"], a)
    np.testing.assert_array_equal(apply(Pass(), b, a)["a.y"], np.concatenate([b, a]))
    np.testing.assert_array_equal(apply(Eltsum(coefficients=(2, -1)), a, b)["a.y"], 2 * a - b)
    np.testing.assert_array_equal(apply(Concat(), a, b)["a.y"], np.concatenate([a, b]))


def test_pixels_are_mirrored_and_scaled():
    row = case(Data(channels=2, size=(1, 3)), batch=2)
    pixels = np.array([[[0, 10], [1, 20], [2, 30]], [[0, 10], [1, 20], [2, 30]]])[:, None]
    given = {"pixels": pixels, "mirror": np.array([0, 1]), "corner": np.zeros((2, 2), int)}
    given |= {"mean": np.array([1.0, 10]), "std": np.array([1.0, 10])}
    y = run(row, make_feed(row) | given)["a.y"]
    np.testing.assert_array_equal(y[..., 0], [[[-1, 0, 1]], [[0, 1, 2]]])
    np.testing.assert_array_equal(y[..., 1], [[[1, 0, -1]], [[2, 1, 0]]])


def score(logits, labels, **options):
    """[results, N]: loss, top-1 error and other errors of logits [K, N]."""
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
    np.testing.assert_array_equal(score(logits, [3] * 5, topk=5)[2], 0)  # all classes are among the first five


def cost(layer, x, t, **how):
    """What a cost leaves for predictions and targets [K, N]; its gradient is of the sum over the samples."""
    x, t = (np.array(array, float)[:, None, None] for array in (x, t))
    row = case(layer, x.shape[:3], x.shape[:3], batch=x.shape[3], frozen=("x1",))
    after = run(row, {"x0": x, "x1": t}, **how)
    return after["a.y"][:, 0, 0], 7 * after["dx0"][:, 0, 0]  # the harness divides by 7, the nominal batch


def test_cross_entropy_with_soft_targets():
    p, t = [[0.2, 0.5], [0.3, 0.5], [0.5, 0.0]], [[0.5, 0], [0.5, 0], [0, 1]]
    y, dx = cost(Crossent(), p, t)
    np.testing.assert_allclose(y[0], [-0.5 * np.log(0.06), 50])  # log 0 is -50
    np.testing.assert_array_equal(y[1], [1, 1])
    np.testing.assert_allclose(dx, [[-2.5, 0], [-0.5 / 0.3, 0], [0, 0]])
    logits, t = [[1, 0], [2, 0], [3, -2000]], [[0.2, 0], [0.3, 0], [0.5, 1]]
    y, dx = cost(Crossent(logits=True), logits, t)
    np.testing.assert_allclose(y[0], [3.407606 - 2.3, 2000 + np.log(2)], rtol=1e-6)
    np.testing.assert_array_equal(y[1], [0, 1])
    np.testing.assert_allclose(dx[:, 0], [0.0900306 - 0.2, 0.2447285 - 0.3, 0.6652410 - 0.5], atol=1e-6)
    np.testing.assert_allclose(dx[:, 1], [0.5, 0.5, -1])


def test_binary_cross_entropy():
    """As torch.nn.functional.binary_cross_entropy_with_logits, reduction="none", pos_weight=3, and its gradient."""
    x, t = [[1.0, -40], [-2, 0]], [[1, 1], [0.25, 1]]
    y, dx = cost(Bce(pos_weight=3), x, t)
    expected = [[3 * 0.313262, 120], [0.25 * 3 * 2.126928 + 0.75 * 0.126928, 3 * 0.693147]]
    np.testing.assert_allclose(y[0], np.sum(expected, 0), rtol=1e-6)
    np.testing.assert_array_equal(y[1:], [[0, 0.5], [0, 0]])
    np.testing.assert_allclose(dx, [[-3 * 0.268941, -3], [-0.571200, -1.5]], rtol=1e-5)
    p = 1 / (1 + np.exp(-np.array(x)))
    np.testing.assert_allclose(cost(Bce(pos_weight=3, logits=False), p, t)[0][0], y[0] - [0, 0], rtol=1e-6)
    y, dx = cost(Bce(logits=False), [[0.0, 1]], [[1, 0]])
    assert y[0].tolist() == [50, 50] and dx.tolist() == [[0, 0]]


def test_negative_targets_count_nothing():
    for layer in (Crossent(), Crossent(logits=True), Bce(), Bce(logits=False)):
        y, dx = cost(layer, [[0.3, 0.3], [0.7, 0.7]], [[-1, 0], [-1, 1]])
        assert not y[:, 0].any() and not dx[:, 0].any()
        assert y[0, 1] > 0 and dx[:, 1].any()
    y, dx = cost(Bce(), [[3.0], [2.0]], [[-1], [0]])
    assert y[1:].ravel().tolist() == [1, 1] and dx[0] == 0


def test_sum_of_squares():
    after = apply(Sum2(coeff=0.5), features([1, 2], [3, -4]))
    np.testing.assert_array_equal(after["a.y"].ravel(), [10, 20])
    np.testing.assert_allclose(7 * after["dx0"][:, 0, 0], [[1, 2], [3, -4]])
