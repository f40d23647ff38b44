"""A network as an ONNX model, through the package `onnx` (the extra `onnx`).

Input "pixels": float32 [N, C, H, W], values 0..255, which the model normalises itself.  Output "scores": float32
[N, K], what the main cost reads.  What only training uses (dropout, costs) is left out.  Layers that ONNX's operators
do not express exactly are an error that names them all.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from convnet import __version__
from convnet.checkpoint import Arrays
from convnet.errors import UserError
from convnet.graph.net import Network, Node
from kernels.neuron.reference import SOFT

OPSET = 17
IR = 8  # the format of the file, as of the release that brought OPSET
# Each function in operators: f(operator, inputs...) is the result of one. a, b: its parameters.
NEURONS: dict[str, Callable[..., str]] = {
    "relu": lambda f, x, a, b: f("Relu", x),
    "tanh": lambda f, x, a, b: f("Mul", f("Tanh", f("Mul", x, b)), a),
    "logistic": lambda f, x, a, b: f("Sigmoid", x),
    "ident": lambda f, x, a, b: f("Identity", x),
    "brelu": lambda f, x, a, b: f("Clip", x, 0.0, a),
    "softrelu": lambda f, x, a, b: f("Where", f("Greater", x, SOFT), x, f("Softplus", f("Min", x, SOFT))),
    "abs": lambda f, x, a, b: f("Abs", x),
    "square": lambda f, x, a, b: f("Mul", x, x),
    "sqrt": lambda f, x, a, b: f("Sqrt", x),
    "linear": lambda f, x, a, b: f("Add", f("Mul", x, a), b),
    "log": lambda f, x, a, b: f("Log", f("Add", x, a)),
    "drelu": lambda f, x, a, b: f("Sub", x, f("Mul", f("Tanh", f("Div", x, a)), a)),
}


def onnx_model(network: Network, weights: Arrays, *, mean: np.ndarray, std: np.ndarray, name: str = "network") -> Any:
    """The model, checked by onnx's own checker. mean, std: of pixels, [1] or [C]; a mean may be an image [C, H, W]."""
    try:
        import onnx
    except ImportError:
        raise UserError("ONNX needs the package onnx: pip install onnx") from None
    graph = _Graph(network, weights)
    graph.normalize(network.data[0], mean, std)
    scores, features = network.main.inputs[0], network.main.in_shapes[0].features
    faults = [fault for node in _needed(network, scores) if (fault := graph.add(node))]
    if faults:
        raise UserError("\n".join(faults))
    graph.emit("Flatten", [graph.values[scores]], "scores", axis=1)
    inputs = [graph.info("pixels", network.data[0].shape)]
    outputs = [onnx.helper.make_tensor_value_info("scores", onnx.TensorProto.FLOAT, ["N", features])]
    made = onnx.helper.make_graph(graph.nodes, name, inputs, outputs, graph.initializers)
    opset = onnx.helper.make_opsetid("", OPSET)
    model = onnx.helper.make_model(
        made, opset_imports=[opset], ir_version=IR, producer_name="convnet", producer_version=__version__
    )
    onnx.checker.check_model(model, full_check=True)
    return model


def _needed(network: Network, last: str) -> list[Node]:
    """The layers that `last` depends on, in order, without the data layer."""
    needed = {last}
    for node in reversed(network.nodes.values()):
        if node.name in needed:
            needed.update(node.inputs)
    return [node for node in network.nodes.values() if node.name in needed and node.inputs]


class _Graph:
    """The model as it grows. Maps are [N, C, H, W] throughout, a vector of features [N, C, 1, 1]."""

    def __init__(self, network: Network, weights: Arrays):
        self.weights = weights
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.values: dict[str, str] = {}  # by layer, the name of its output
        self.parameters: set[str] = set()

    def emit(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(operator, inputs, [output], name=f"{output}:{operator}", **attributes))
        return output

    def constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        array = np.asarray(value)
        array = array.astype(np.float32) if array.dtype.kind == "f" else array.astype(np.int64)
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def info(self, name: str, shape: Any) -> Any:
        from onnx import TensorProto, helper

        return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", shape.channels, shape.height, shape.width])

    def normalize(self, data: Node, mean: np.ndarray, std: np.ndarray) -> None:
        less, over = (
            self.constant(f"{data.name}.{key}", np.float32(given).reshape(1, -1, *(np.shape(given)[1:] or (1, 1))))
            for key, given in (("mean", mean), ("std", std))
        )
        centred = self.emit("Sub", ["pixels", less], f"{data.name}.centred")
        self.values[data.name] = self.emit("Div", [centred, over], data.name)

    def add(self, node: Node) -> str:
        """Emit a layer's operators; why there are none for it, or nothing."""
        self.values[node.name] = node.name
        try:
            convert = CONVERTERS.get(node.layer.type)
            if convert is None:
                raise _unsupported(node, f"a {node.layer.type} layer")
            self.values[node.name] = convert(self, node, [self.values[name] for name in node.inputs])
        except UserError as error:
            return str(error)
        return ""

    def parameter(self, node: Node, key: str) -> str:
        """The name of one of a layer's parameters or states, which may be another layer's."""
        name = node.shared.get(f"{node.name}.{key}", f"{node.name}.{key}")
        if name not in self.parameters:
            self.parameters.add(self.constant(name, self.weights[name]))
        return name

    def linear(self, node: Node, outputs: int) -> list[str]:
        """Weights and, where there are some, biases, one for each of `outputs`."""
        if f"{node.name}.bias" not in self.weights:
            return [self.parameter(node, "weight")]
        if self.weights[f"{node.name}.bias"].size != outputs:
            raise _unsupported(node, "a bias of its own for each position")
        return [self.parameter(node, key) for key in ("weight", "bias")]


def _unsupported(node: Node, what: str) -> UserError:
    return UserError(f"layer '{node.name}': {what} has no counterpart in ONNX")


def _pads(node: Node, before: Sequence[int]) -> list[int]:
    """Padding at both beginnings, then at both ends, with which ONNX's floor gives the windows that we have."""
    x, y, layer = node.in_shapes[0], node.shape, vars(node.layer)
    stride = layer["stride"] or layer["size"]
    sides = zip((x.height, x.width), layer["size"], stride, (y.height, y.width), before, strict=True)
    return [*before, *(max((out - 1) * step + size - side - pad, 0) for side, size, step, out, pad in sides)]


def _conv(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    shape = {"kernel_shape": list(layer.size), "strides": list(layer.stride), "pads": _pads(node, layer.pad)}
    return graph.emit("Conv", [*xs, *graph.linear(node, layer.filters)], node.name, group=layer.groups, **shape)


def _pool(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    before = list(layer.pad) if layer.start is None else [-side for side in layer.start]
    pads = _pads(node, before)
    if layer.mode not in ("max", "avg") or min(before) < 0:
        raise _unsupported(node, f"mode {layer.mode} with start {layer.start}")
    if layer.count_pad and any(after > pad for after, pad in zip(pads[2:], before, strict=True)):
        raise _unsupported(node, "count_pad with windows that hang over the padding")
    shape = {"kernel_shape": list(layer.size), "strides": list(layer.stride or layer.size), "pads": pads}
    if layer.mode == "max":
        return graph.emit("MaxPool", xs, node.name, **shape)
    return graph.emit("AveragePool", xs, node.name, count_include_pad=int(layer.count_pad), **shape)


def _global_pool(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    operators = {"max": "GlobalMaxPool", "avg": "GlobalAveragePool"}
    if layer.mode not in operators:
        raise _unsupported(node, f"mode {layer.mode}")
    return graph.emit(operators[layer.mode], xs, node.name)


def _fc(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    flat = graph.emit("Flatten", xs, f"{node.name}.flat", axis=1)
    product = graph.emit("Gemm", [flat, *graph.linear(node, layer.outputs)], f"{node.name}.product", transB=1)
    shape = graph.constant(f"{node.name}.shape", [0, -1, 1, 1])
    return graph.emit("Reshape", [product, shape], node.name)


def _batch_norm(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    parameters = [graph.parameter(node, key) for key in ("weight", "bias", "running_mean", "running_var")]
    return graph.emit("BatchNormalization", [*xs, *parameters], node.name, epsilon=layer.eps)


def _cmrnorm(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    if layer.size % 2 == 0 or layer.blocked:  # ONNX's window of an even size begins one map later
        raise _unsupported(node, f"size {layer.size}, blocked {layer.blocked}")
    alpha = layer.scale if layer.divide else layer.scale * layer.size
    return graph.emit("LRN", xs, node.name, size=layer.size, alpha=alpha, beta=layer.pow, bias=layer.min_div)


def _neuron(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    parameters = (1.0 if value is None else value for value in (layer.a, layer.b))

    def function(operator: str, *inputs: str | float) -> str:
        if operator == "Mul" and inputs[1] == 1.0:
            return str(inputs[0])
        name = f"{node.name}.{len(graph.nodes)}"
        values = [x if isinstance(x, str) else graph.constant(f"{name}.{i}", x) for i, x in enumerate(inputs)]
        return graph.emit(operator, values, name)

    return NEURONS[layer.kind](function, *xs, *parameters)


def _dropout(graph: _Graph, node: Node, xs: list[str]) -> str:
    layer: Any = node.layer
    if layer.scale == "train":
        return xs[0]
    return graph.emit("Mul", [*xs, graph.constant(f"{node.name}.keep", layer.keep)], node.name)


def _concat(graph: _Graph, node: Node, xs: list[str]) -> str:
    return graph.emit("Concat", xs, node.name, axis=1)


def _eltsum(graph: _Graph, node: Node, xs: list[str]) -> str:
    factors = vars(node.layer)["coefficients"] or (1.0,) * len(xs)
    terms = [
        x if factor == 1 else graph.emit("Mul", [x, graph.constant(f"{node.name}.{i}", factor)], f"{node.name}.term{i}")
        for i, (x, factor) in enumerate(zip(xs, factors, strict=True))
    ]
    return graph.emit("Sum", terms, node.name)


Converter = Callable[[_Graph, Node, list[str]], str]  # emits the operators of a layer; the name of its output
CONVERTERS: dict[str, Converter] = {
    "conv": _conv,
    "pool": _pool,
    "global_pool": _global_pool,
    "fc": _fc,
    "batch_norm": _batch_norm,
    "cmrnorm": _cmrnorm,
    "neuron": _neuron,
    "eltsum": _eltsum,
    "eltmax": lambda graph, node, xs: graph.emit("Max", xs, node.name),
    "concat": _concat,
    "pass": _concat,
    "softmax": lambda graph, node, xs: graph.emit("Softmax", xs, node.name, axis=1),
    "dropout": _dropout,
}
