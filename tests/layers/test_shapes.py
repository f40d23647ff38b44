"""Output shapes, parameters and costs of layers; what they refuse; that the table is complete."""

import dataclasses

import pytest
import yaml

import layers
from kernels.neuron import KINDS
from layers.base import Layer, Shape
from layers.batch_norm import BatchNorm
from layers.cmpool import Cmpool
from layers.cmrnorm import Cmrnorm
from layers.colour import Rgb2lab
from layers.conv import Conv
from layers.costs import Bce, Crossent, Dce
from layers.data import Data
from layers.dropout import Dropout
from layers.fc import Fc, Sfc
from layers.image import Crop, Nailbed
from layers.join import Concat, Eltmax, Eltsum, Pass
from layers.local import Local
from layers.logreg import Logreg
from layers.neuron import Neuron
from layers.options import LAYERS, ConfigError, Options, Size, build
from layers.pool import GlobalPool, Pool
from layers.resize import Resize, Rscale
from tests.layers.cases import CASES
from tests.layers.harness import extent, make_feed, run

# side, size, stride, pad; windows as PyTorch's MaxPool2d (floor, ceil_mode), Caffe and cuda-convnet (start -pad) have
# them; and with the end padded too and no window left out, as Chainer's cover_all and cuda-convnet's convolution
POSITIONS = [
    (55, 3, 2, 0, 27, 27, 27, 27, 27),
    (112, 3, 2, 0, 55, 56, 56, 56, 56),
    (112, 3, 2, 1, 56, 57, 57, 56, 57),
    (64, 3, 2, 1, 32, 33, 33, 32, 33),
    (5, 2, 2, 1, 3, 3, 3, 3, 4),
    (6, 1, 2, 0, 3, 3, 4, 4, 4),
    (6, 3, 2, 0, 2, 3, 3, 3, 3),
]


def test_every_layer_type_has_a_row():
    assert set(LAYERS.discover(layers)) == {row.layer.type for row in CASES}


@pytest.mark.parametrize("side, size, stride, pad, floor, ceil, caffe, convnet, cover", POSITIONS)
def test_windows_are_counted_as_elsewhere(side, size, stride, pad, floor, ceil, caffe, convnet, cover):
    def counts(kind, wide=9, **options):
        """Down and across, for each rounding."""
        window = {"size": (size, 1), "stride": (stride, 1), "pad": (pad, 0)}
        for rounding in ("floor", "ceil", "caffe", "convnet"):
            down = kind(**window, rounding=rounding, **options).output(Shape(2, side, wide))
            across = kind(**{key: value[::-1] for key, value in window.items()}, rounding=rounding, **options)
            assert across.output(Shape(2, wide, side)) == Shape(down.channels, down.width, down.height)
            assert down.width == wide
            yield down.height

    assert list(counts(Pool)) == [floor, ceil, caffe, convnet]
    assert list(counts(Conv, filters=3)) == [floor, ceil, floor, cover]  # Caffe's convolution rounds down
    start = {"size": size, "stride": stride, "start": -pad, "rounding": "convnet"}
    assert Pool(**start).output(Shape(1, side, side)) == Shape(1, convnet, convnet)


@pytest.mark.parametrize(
    "pool, x, y",
    [
        (Pool(size=1, stride=2, rounding="ceil"), Shape(1, 6, 7), Shape(1, 3, 4)),
        (Pool(size=3, stride=4, rounding="ceil"), Shape(1, 8, 10), Shape(1, 2, 3)),
        (Pool(size=2), Shape(4, 7, 8), Shape(4, 3, 4)),
        (Pool(size=5, rounding="ceil"), Shape(3, 4, 6), Shape(3, 1, 2)),  # a window larger than the map
        (Pool(size=3, stride=2, start=(1, -2)), Shape(2, 8, 8), Shape(2, 3, 4)),
        (Pool(size=1, stride=2, pad=0, rounding="caffe"), Shape(1, 6, 5), Shape(1, 4, 3)),
        (Pool(size=(2, 3), stride=2, pad=(0, 1), rounding="caffe"), Shape(1, 5, 5), Shape(1, 3, 3)),
        (GlobalPool(), Shape(2048, 7, 10), Shape(2048)),
        (Nailbed(stride=(2, 3)), Shape(3, 7, 7), Shape(3, 4, 3)),
        (Crop(start=(1, 0), size=(3, 5)), Shape(3, 4, 5), Shape(3, 3, 5)),
        (Resize(scale=1.14), Shape(3, 256, 320), Shape(3, 224, 280)),
        (Resize(scale=0.5), Shape(3, 5, 8), Shape(3, 10, 16)),
        (Rscale(max_scale=1.14, size=224), Shape(3, 256, 320), Shape(3, 224, 224)),
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
        (Pool(size=5, stride=1, rounding="ceil"), [(3, 4, 6)], "size 5 is larger than the 4x6 map (with pad 0)"),
        (Pool(size=3, start=-1), [(3, 1, 6)], "size 3 is larger than the 1x6 map (with start -1)"),
        (Pool(size=3, stride=9, start=4, rounding="convnet"), [(3, 4, 4)], "start 4 is beyond the 4x4 map"),
        (Crop(start=(2, 0), size=3), [(3, 4, 4)], "size 3 from [2, 0] on is not within the 4x4 map"),
        (Resize(scale=2), [(3, 1, 4)], "nothing is left of the 1x4 map at scale 2"),
        (Rscale(max_scale=2, size=5), [(3, 4, 6)], "size 5 is larger than the 4x6 map"),
        (
            Rscale(max_scale=1.5, size=6),
            [(3, 12, 11)],
            "size 6 is smaller than the 12x11 map at max_scale 1.5, 8x7",
        ),
        (Rgb2lab(), [(4, 4, 4)], "expected the channels R, G, B, found 4x4x4"),
        (Conv(filters=4, size=1, groups=2), [(3, 2, 2)], "groups 2 does not divide the 3 channels of the input"),
        (Conv(filters=3, size=1, groups=2), [(4, 2, 2)], "groups 2 does not divide the 3 filters"),
        (Eltsum(), [(3, 4, 4), (3, 4, 5)], "expected inputs of equal shapes, found 3x4x4, 3x4x5"),
        (Eltsum(coefficients=[1, 2, 3]), [(3,), (3,)], "coefficients: expected 2 numbers, one for each input, found 3"),
        (Local(filters=2, size=3), [(3, 2, 2)], "size 3 is larger than the 2x2 map (with pad 0)"),
        (Local(filters=3, size=1, groups=2), [(4, 2, 2)], "groups 2 does not divide the 3 filters"),
        (Sfc(outputs=2, parts=5), [(3, 2, 2)], "parts 5 does not divide the 12 features of the input (3x2x2)"),
        (Cmpool(size=5), [(4, 2, 2)], "size 5 is larger than the 4 maps of the input (4x2x2)"),
        (Eltmax(), [(3, 4, 4), (3, 4, 5)], "expected inputs of equal shapes, found 3x4x4, 3x4x5"),
        (Pass(), [(3, 4, 4), (5, 3, 4)], "expected inputs of equal heights and widths, found 3x4x4, 5x3x4"),
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
        (Crossent(), [(10,), (9,)], "expected labels, or targets of the shape 10x1x1, found 9x1x1"),
        (Crossent(), [(1,), (1,)], "expected the probabilities of two or more classes, Kx1x1, found 1x1x1"),
        (Bce(), [(3, 4, 5), (3, 5, 4)], "expected labels, or targets of the shape 3x4x5, found 3x5x4"),
        (Bce(), [(3, 4, 5), (1,)], "labels are for predictions of classes, Kx1x1, found 3x4x5"),
        (Dce(), [(3, 4, 5), (3, 4, 5)], "expected predictions of classes, Kx1x1, found 3x4x5"),
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
        (
            {"type": "pool", "size": 3, "pad": 1, "start": -1},
            "start: takes the place of pad, found both start and pad 1",
        ),
        (
            {"type": "pool", "size": 3, "mode": "avg", "count_pad": True, "start": -1},
            "start: takes the place of pad, found both start and count_pad, which needs pad",
        ),
        (
            {"type": "pool", "size": 3, "start": -3},
            "start: expected the first window (size 3) to reach the map, found -3",
        ),
        ({"type": "blur", "size": 4, "stdev": 1}, "size: expected 3, 5, 7 or 9, found 4"),
        ({"type": "resize", "scale": 2.5}, "scale: expected a number >= 0.5 and <= 2, found 2.5"),
        ({"type": "rscale", "max_scale": 0.9, "size": 4}, "max_scale: expected a number >= 1 and <= 2, found 0.9"),
        ({"type": "pool", "size": 0}, "size: expected a size >= 1"),
        ({"type": "pool", "size": 2, "stride": [1, 0]}, "stride: expected a size >= 1"),
        ({"type": "pool", "size": 2, "rounding": "up"}, "rounding: expected one of floor, ceil, caffe, convnet, found"),
        ({"type": "dropout", "keep": 0}, "keep: expected a number > 0 and <= 1, found 0"),
        ({"type": "neuron", "kind": "relo"}, f"kind: expected one of {', '.join(KINDS)}, found 'relo'"),
        ({"type": "neuron", "kind": "brelu"}, "brelu takes a, found none"),
        ({"type": "neuron", "kind": "tanh", "a": 2}, "tanh takes a and b, found a"),
        ({"type": "neuron", "kind": "log[1,2]"}, "log takes a, found a and b"),
        ({"type": "neuron", "kind": "relu[1]"}, "relu takes no parameters, found a"),
        (
            {"type": "neuron", "kind": "tanh[1,x]"},
            "kind: expected a kind and its parameters, such as tanh[1.7159, 0.6667], found 'tanh[1,x]'",
        ),
        ({"type": "neuron", "kind": "brelu[6]", "a": 6}, "kind: parameters stand in 'brelu[6]' and beside it"),
        ({"type": "neuron", "kind": "brelu", "a": -1}, "a: expected a number > 0, found -1"),
        ({"type": "neuron", "kind": "drelu[0]"}, "a: expected a number other than 0, found 0"),
        ({"type": "logreg", "topk": [1, 2, 3, 4, 5, 6, 7, 8, 9]}, "topk: expected at most 8 of them with 1, found 9"),
        ({"type": "logreg", "topk": [3, 3]}, "topk: expected each k once, found [3, 3]"),
        ({"type": "bce", "pos_weight": 0}, "pos_weight: expected a number > 0, found 0"),
        ({"type": "dropout", "scale": "test"}, "scale: expected one of train, eval, found 'test'"),
        ({"type": "conv", "filters": 0, "size": 3}, "filters: expected an integer >= 1, found 0"),
        ({"type": "logreg", "smoothing": 1}, "smoothing: expected a number >= 0 and < 1, found 1"),
        (
            {"type": "cmpool", "size": 2, "stride": 3},
            "stride: expected it <= size (2), so that no map is left out, found 3",
        ),
        ({"type": "cmpool", "size": 2, "start": -2}, "start: expected it > -size (-2), found -2"),
        ({"type": "cmpool", "size": 2, "start": 1}, "start: expected an integer <= 0, found 1"),
        ({"type": "rnorm"}, "option 'size' is missing; expected an integer >= 1"),
        ({"type": "cnorm", "size": 3, "exact": 2}, "exact: expected true or false, found 2"),
        ({"type": "conv", "filters": 1, "size": 3, "share_biases": False}, "unknown option 'share_biases'"),
        ({"type": "local", "filters": 1, "size": 3, "shared_biases": False}, "unknown option 'shared_biases'"),
        ({"type": "cmrnorm", "size": 5, "min_div": 0}, "min_div: expected a number > 0, found 0"),
    ],
)
def test_options_out_of_range(section, message):
    with pytest.raises(ConfigError) as error:
        build(Layer, section)
    assert str(error.value).startswith(message)


def test_a_neuron_is_written_in_several_ways():
    """As cuda-convnet2 writes it, or with its parameters by name; in what is written back, they stand with the kind."""
    written = [build(Layer, {"type": "neuron", "kind": kind}) for kind in ("tanh[1.5,0.5]", " tanh [ 1.5, .5 ] ")]
    assert {*written, Neuron(kind="tanh", a=1.5, b=0.5)} == {Neuron(kind="tanh", a=1.5, b=0.5)}
    assert [str(Neuron(kind=kind)) for kind in ("relu", "tanh", "brelu[6]", "tanh[1.5, -0.1]")] == [
        "relu", "tanh", "brelu[6.0]", "tanh[1.5,-0.1]",
    ]  # fmt: skip


def test_names_of_results():
    assert Logreg().results(Shape(10), Shape(1)) == ("loss", "top1_error", "top5_error")
    assert Logreg(topk=(7, 1, 3)).results(Shape(7), Shape(1)) == ("loss", "top1_error", "top3_error", "top7_error")
    assert Logreg().results(Shape(4), Shape(1)) == ("loss", "top1_error", "top4_error")
    assert Logreg(topk=1).results(Shape(7), Shape(1)) == ("loss", "top1_error")
    assert Bce().results(Shape(7), Shape(7)) == ("loss", "bit_error", "top1_error")
    assert Bce().results(Shape(1), Shape(1)) == Bce().results(Shape(3, 4, 4), Shape(3, 4, 4)) == ("loss", "bit_error")


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


def test_more_than_there_are_classes() -> None:
    with pytest.raises(ConfigError, match="topk: expected at most 7, the classes, found 10"):
        Logreg(topk=(10, 1, 3)).output(Shape(7), Shape(1))
