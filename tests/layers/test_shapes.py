"""Output shapes, parameters and costs of layers; what they refuse; that the table is complete."""

import dataclasses

import pytest
import yaml

import layers
from layers.base import Layer, Shape
from layers.batch_norm import BatchNorm
from layers.cmrnorm import Cmrnorm
from layers.conv import Conv
from layers.data import Data
from layers.dropout import Dropout
from layers.fc import Fc
from layers.join import Concat, Eltsum
from layers.logreg import Logreg
from layers.options import LAYERS, ConfigError, Options, Size, build
from layers.pool import Pool
from tests.layers.cases import CASES
from tests.layers.harness import extent, make_feed, run

# side, size, stride, pad; positions with rounding floor and ceil, as PyTorch's MaxPool2d gives them
POSITIONS = [
    (55, 3, 2, 0, 27, 27),
    (112, 3, 2, 0, 55, 56),
    (112, 3, 2, 1, 56, 57),
    (64, 3, 2, 1, 32, 33),
    (5, 2, 2, 1, 3, 3),
    (6, 1, 2, 0, 3, 3),
    (6, 3, 2, 0, 2, 3),
]


def test_every_layer_type_has_a_row():
    assert set(LAYERS.discover(layers)) == {row.layer.type for row in CASES}


@pytest.mark.parametrize("rounding", ["floor", "ceil"])
@pytest.mark.parametrize("side, size, stride, pad, floor, ceil", POSITIONS)
def test_windows_follow_pytorch(side, size, stride, pad, floor, ceil, rounding):
    expected = floor if rounding == "floor" else ceil
    window = {"size": (size, 1), "stride": (stride, 1), "pad": (pad, 0), "rounding": rounding}
    assert Pool(**window).output(Shape(2, side, 9)) == Shape(2, expected, 9)
    assert Conv(filters=3, **window).output(Shape(2, side, 9)) == Shape(3, expected, 9)
    across = {key: value[::-1] if isinstance(value, tuple) else value for key, value in window.items()}
    assert Pool(**across).output(Shape(2, 9, side)) == Shape(2, 9, expected)


@pytest.mark.parametrize(
    "pool, x, y",
    [
        (Pool(size=1, stride=2, rounding="ceil"), Shape(1, 6, 7), Shape(1, 3, 4)),
        (Pool(size=3, stride=4, rounding="ceil"), Shape(1, 8, 10), Shape(1, 2, 3)),
        (Pool(size=2), Shape(4, 7, 8), Shape(4, 3, 4)),
    ],
)
def test_rectangles(pool, x, y):
    assert pool.output(x) == y


@pytest.mark.parametrize("row", CASES, ids=str)
def test_the_output_is_filled_to_its_shape(row):
    y = run(row, make_feed(row), backward=False)["a.y"]
    assert y.shape == (*extent(row.layer.output(*row.inputs)), row.batch)
    assert y.dtype == "float64" and y.size and not (y != y).any()


def test_parameters_are_pytorchs():
    conv = Conv(filters=6, size=(3, 2), groups=2)
    params = conv.params(Shape(4, 8, 8))
    assert {name: param.shape for name, param in params.items()} == {"weight": (6, 2, 3, 2), "bias": (6,)}
    assert params["weight"].fan_in == 12 and params["weight"].decays and not params["bias"].decays
    assert Fc(outputs=5, bias=False).params(Shape(2, 3, 4)).keys() == {"weight"}
    assert Fc(outputs=5).params(Shape(2, 3, 4))["weight"].shape == (5, 24)
    norm = BatchNorm()
    assert not any(param.decays for param in norm.params(Shape(3, 2, 2)).values())
    assert {name: state.fill for name, state in norm.states(Shape(3)).items()} == {
        "running_mean": 0,
        "running_var": 1,
    }


def test_multiply_adds():
    conv1 = Conv(filters=64, size=11, stride=4, pad=2)  # AlexNet's first: 64 x 55 x 55 outputs of 3 x 11 x 11 products
    assert conv1.multiply_adds(Shape(3, 224, 224)) == 64 * 55 * 55 * 363
    assert Conv(filters=6, size=3, groups=3).multiply_adds(Shape(9, 5, 5)) == 6 * 9 * 3 * 9
    assert Fc(outputs=10).multiply_adds(Shape(4, 3, 2)) == 240
    assert Pool(size=2).multiply_adds(Shape(4, 4, 4)) == 0


@pytest.mark.parametrize(
    "layer, inputs, message",
    [
        (Pool(size=9), [(3, 4, 4)], "size 9 is larger than the 4x4 map (with pad 0)"),
        (Conv(filters=2, size=3), [(3, 2, 2)], "size 3 is larger than the 2x2 map (with pad 0)"),
        (Conv(filters=2, size=(2, 8), pad=(0, 1)), [(3, 7, 5)], "size 2x8 is larger than the 7x5 map (with pad 0x1)"),
        (Pool(size=5, rounding="ceil"), [(3, 4, 6)], "size 5 is larger than the 4x6 map (with pad 0)"),
        (Conv(filters=4, size=1, groups=2), [(3, 2, 2)], "groups 2 does not divide the 3 channels of the input"),
        (Conv(filters=3, size=1, groups=2), [(4, 2, 2)], "groups 2 does not divide the 3 filters"),
        (Eltsum(), [(3, 4, 4), (3, 4, 5)], "expected inputs of equal shapes, found 3x4x4, 3x4x5"),
        (Eltsum(coefficients=[1, 2, 3]), [(3,), (3,)], "coefficients: expected 2 numbers, one for each input, found 3"),
        (Concat(), [(3, 4, 4), (5, 3, 4)], "expected inputs of equal heights and widths, found 3x4x4, 5x3x4"),
        (
            Logreg(),
            [(10, 4, 4), (1,)],
            "expected the scores of two or more classes, Kx1x1, found 10x4x4; an fc layer with K outputs gives them",
        ),
        (
            Logreg(),
            [(1,), (1,)],
            "expected the scores of two or more classes, Kx1x1, found 1x1x1; an fc layer with K outputs gives them",
        ),
        (Logreg(), [(10,), (10,)], "expected [scores, labels], found a second input of 10x1x1"),
    ],
)
def test_inputs_that_do_not_suit(layer, inputs, message):
    with pytest.raises(ConfigError) as error:
        layer.output(*(Shape(*shape) for shape in inputs))
    assert str(error.value) == message


@pytest.mark.parametrize(
    "section, message",
    [
        ({"type": "pool", "size": 3, "pad": 3}, "pad: expected it smaller than size (3), found 3"),
        ({"type": "pool", "size": 3, "count_pad": True}, "count_pad: applies to mode avg alone, found mode max"),
        ({"type": "pool", "size": 0}, "size: expected a size >= 1"),
        ({"type": "pool", "size": 2, "stride": [1, 0]}, "stride: expected a size >= 1"),
        ({"type": "pool", "size": 2, "rounding": "up"}, "rounding: expected one of floor, ceil, found 'up'"),
        ({"type": "dropout", "keep": 0}, "keep: expected a number > 0 and <= 1, found 0"),
        ({"type": "neuron", "kind": "relo"}, "kind: expected one of relu, tanh, logistic, found 'relo'"),
        ({"type": "conv", "filters": 0, "size": 3}, "filters: expected an integer >= 1, found 0"),
        ({"type": "logreg", "smoothing": 1}, "smoothing: expected a number >= 0 and < 1, found 1"),
        ({"type": "cmrnorm", "size": 5, "min_div": 0}, "min_div: expected a number > 0, found 0"),
    ],
)
def test_options_out_of_range(section, message):
    with pytest.raises(ConfigError) as error:
        build(Layer, section)
    assert str(error.value).startswith(message)


def test_defaults():
    assert Pool(size=(2, 3)).stride is None and Pool(size=(2, 3)).output(Shape(1, 4, 6)) == Shape(1, 2, 2)
    assert Dropout().keep == 0.5 and Cmrnorm(size=5).divide and Data(size=4).output() == Shape(3, 4, 4)


def section(value):
    """What a config file would hold for a value."""
    if isinstance(value, Size):
        return list(value)
    if isinstance(value, tuple):
        return [section(item) for item in value]
    if not isinstance(value, Options):
        return value
    fields = {field.name: section(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return {"type": value.type, **fields} if value.type else fields


@pytest.mark.parametrize("row", CASES, ids=str)
def test_config_round_trip(row):
    text = yaml.safe_dump(section(row.layer))
    assert build(Layer, yaml.safe_load(text)) == row.layer


@pytest.mark.parametrize("name", list(LAYERS.discover(layers)))
def test_layers_and_options_are_documented(name):
    kind = LAYERS[name]
    assert kind.__doc__ and not kind.__doc__.startswith(f"{kind.__name__}(")
    undocumented = [f.name for f in dataclasses.fields(kind) if not f.metadata["rule"].doc]
    assert not undocumented
