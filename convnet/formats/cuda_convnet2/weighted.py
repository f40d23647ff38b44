"""Layers of cuda-convnet2 that have weights: a matrix for each input, of which the products are summed."""

from typing import Any

from convnet.formats.cuda_convnet2.cfg import REQUIRED, Section
from convnet.formats.cuda_convnet2.conversion import Check, Conversion, Options
from convnet.formats.cuda_convnet2.rates import EXPECTED, Learned, Rate, read_rate
from layers.values import as_integer, as_number


def filters(net: Conversion, s: Section, inputs: list[str]) -> None:
    """conv and local. Filters are counted for each group there."""
    kind = s.text("type")

    def each(option: str, default: Any = REQUIRED) -> list[int]:
        return s.values(option, len(inputs), as_integer, "an integer", default)

    channels, groups = each("channels"), each("groups", 1)
    counts = [count * group for count, group in zip(each("filters"), groups, strict=True)]
    given = zip(counts, each("filterSize"), each("stride", 1), each("padding", 0), groups, strict=True)
    names, defaults = ("filters", "size", "stride", "pad", "groups"), (None, None, 1, 0, 1)
    options: list[Options] = [
        {name: value for name, value, default in zip(names, values, defaults, strict=True) if value != default}
        | {"rounding": "convnet"}
        for values in given
    ]
    s.skip("sumWidth", "partialSum", "randSparse")  # the last is of an older version, and not read by cuda-convnet2
    if kind == "conv" and not s.flag("sharedBiases", True):
        options[0]["shared_biases"] = False
    _weights(net, s, inputs, kind, options)
    for part, input_, count in zip(net.parts[s.name], inputs, channels, strict=True):
        net.expect_channels(s, part, input_, count)
    if modules := s.integer("modulesX", 0):
        net.checks.append(Check(net.parts[s.name][0], s, "modulesX", modules))


def fully_connected(net: Conversion, s: Section, inputs: list[str]) -> None:
    """fc and sfc."""
    kind = s.text("type")
    options: Options = {"outputs": s.integer("outputs")} | ({"parts": s.integer("parts")} if kind == "sfc" else {})
    _weights(net, s, inputs, kind, [options] * len(inputs))


def _weights(net: Conversion, s: Section, inputs: list[str], kind: str, given: list[Options]) -> None:
    """A layer for each input, with the options given, and the sum of them where there are several; one has the bias."""
    count, several = len(inputs), len(inputs) > 1
    parts = [f"{s.name}.{i}" for i in range(count)] if several else [s.name]
    net.parts[s.name] = parts
    for option in ("initWFunc", "initBFunc"):
        if s.has(option):
            raise s.error("cannot be converted; the initializer `function` is for Python code", option)
    stds = s.values("initW", count, as_number, "a number", 0.01)
    bias = s.number("initB", 0.0)
    sources = _sources(net, s, count)
    for i, (part, input_) in enumerate(zip(parts, inputs, strict=True)):
        init: Options = {"init": {"type": "gaussian", "std": stds[i]}}
        options: Options = given[i] | ({"share": sources[i]} if sources[i] else init)
        if i == 0:
            options |= {"init_bias": {"type": "constant", "value": bias}} if bias else {}
        else:
            options["bias"] = False
        if several:
            net.add(s, part, kind, [input_], options)
        else:
            net.finish(s, part, kind, [input_], options)
    if several:
        net.finish(s, s.name, "eltsum", parts, {})
    net.learned += _learned(net, s, parts, sources)


def _sources(net: Conversion, s: Section, count: int) -> list[str]:
    """For each input the layer of ours whose weights it shares, empty where it has its own."""
    if not s.has("weightSource"):
        return [""] * count
    written = s.names("weightSource")
    if len(written) != count:
        raise s.error(f"expected {count} layers, one for each input, found {len(written)}", "weightSource")
    return [_source(net, s, text) if text else "" for text in written]


def _source(net: Conversion, s: Section, text: str) -> str:
    name, _, index = text.removesuffix("]").partition("[")
    number = as_integer(index or "0")
    if net.kinds.get(name) != s.text("type") or name not in net.parts:
        raise s.error(f"expected a {s.text('type')} layer above, found '{text}'", "weightSource")
    if number is None or not 0 <= number < len(net.parts[name]):
        raise s.error(f"'{name}' has {len(net.parts[name])} inputs, found '{text}'", "weightSource")
    return net.parts[name][number]


def _note_rate(net: Conversion, s: Section, part: str, rate: Rate, source: str, own: dict[str, Rate]) -> None:
    """There a layer's epsW stands in what it adds to a gradient, except in that of a convolution's weights."""
    while "share" in net.layers[source]:
        source = net.layers[source]["share"]
    rates = own | {one.layer: one.weights for one in net.learned if one.weights}
    if s.text("type") != "conv" and rate != rates[source]:
        net.notes.append(
            f"{part}: there its epsW weighs its part of the gradient of {source}'s weights; here they have one rate"
        )


def _learned(net: Conversion, s: Section, parts: list[str], sources: list[str]) -> list[Learned]:
    """How each part learns that does: of weights that are another's, what is said here has no effect."""
    count = len(parts)
    s.skip("superEps", "superMom")
    weights = s.values("epsW", count, read_rate, EXPECTED)
    biases: Rate = s.value("epsB", read_rate, EXPECTED, default=weights[0])
    momenta = s.values("momW", count, as_number, "a number")
    bias_momentum = s.number("momB", momenta[0])
    decays = s.values("wc", count, as_number, "a number", 0.0)
    balls = s.values("wball", count, as_number, "a number", 0.0)
    more: list[Options] = [{"wball": ball} if ball else {} for ball in balls]
    if s.text("type") == "conv":
        for option, name in ("wcNormMin", "norm_min"), ("wcNormMax", "norm_max"):
            bounds = s.values(option, count, as_number, "a number", 0.0)
            more = [one | ({name: bound} if bound else {}) for one, bound in zip(more, bounds, strict=True)]
    for i, source in enumerate(sources):
        if source:
            _note_rate(net, s, parts[i], weights[i], source, dict(zip(parts, weights, strict=True)))
            momenta[i], more[i] = bias_momentum, {}
    period = s.integer("updatePeriod", 0)
    if period > 1 and net.passes > 1:
        net.notes.append(f"{s.name}: updatePeriod={period} counts parts of a batch there; here each batch is an update")
    elif period > 1:
        more = [one | {"update_every": period} for one in more]
    own = [None if source else rate for rate, source in zip(weights, sources, strict=True)]
    with_bias = [biases, *[None] * (count - 1)]
    columns = zip(parts, own, with_bias, momenta, [bias_momentum] * count, decays, more, strict=True)
    return [one for one in (Learned(*column) for column in columns) if one.weights or one.biases]
