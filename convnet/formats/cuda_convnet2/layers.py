"""Layers of cuda-convnet2, one after the other, to ours."""

from collections.abc import Callable
from typing import Any

from convnet.formats.cuda_convnet2.cfg import Section
from convnet.formats.cuda_convnet2.conversion import Check, Conversion, Options
from convnet.formats.cuda_convnet2.weighted import filters, fully_connected
from layers.base import LABELS
from layers.registry import suggest
from layers.values import as_number


def convert(net: Conversion, section: Section) -> None:
    """Add a layer to the network; ConfigError, with its place, for what is not known."""
    kind = section.text("type")
    if kind not in CONVERTERS:
        raise section.error(f"unknown layer type '{kind}'{suggest(kind, CONVERTERS)}", "type")
    inputs = [] if kind == "data" else [net.input(section, name) for name in section.names("inputs")]
    net.kinds[section.name] = kind
    net.place(section, kind)
    CONVERTERS[kind](net, section, inputs)
    section.finish(kind)


def _data(net: Conversion, s: Section, inputs: list[str]) -> None:
    index = s.integer("dataIdx")
    if s.has("start") or s.has("end"):
        raise s.error("parts of the data cannot be chosen here", "start" if s.has("start") else "end")
    if index == 0:
        net.names[s.name] = net.add(s, s.name, "data", [], {"channels": 3, "size": net.size})
    elif index in (1, 2):
        net.names[s.name] = LABELS
        if index == 2:
            net.notes.append(f"{s.name}: the matrix of labels becomes one label for each image")
    else:
        raise s.error("expected 0 (images), 1 (labels) or 2 (a matrix of labels)", "dataIdx")


def _pool(net: Conversion, s: Section, inputs: list[str]) -> None:
    kinds = ("max", "maxabs", "avg")
    mode = s.value("pool", lambda text: text if text in kinds else None, "max, maxabs or avg", "max")
    if s.flag("sum", False):
        if mode != "avg":
            raise s.error(f"goes with pool=avg alone, found pool={mode}", "sum")
        mode = "sum"
    start = s.integer("start", 0)
    options: Options = {"mode": mode, "size": s.integer("sizeX"), "stride": s.integer("stride")}
    options |= ({"start": start} if start else {}) | {"rounding": "convnet"}
    net.finish(s, s.name, "pool", inputs, options)
    _sized(net, s, inputs)


def _sized(net: Conversion, s: Section, inputs: list[str]) -> None:
    """The channels, and the outputs along a side, that a section may give."""
    if s.has("channels"):
        net.expect_channels(s, s.name, inputs[0], s.integer("channels"))
    if outputs := s.integer("outputsX", 0):
        net.checks.append(Check(s.name, s, "outputsX", outputs))


def _cmpool(net: Conversion, s: Section, inputs: list[str]) -> None:
    s.value("pool", lambda text: text if text == "max" else None, "max", "max")
    options: Options = {"size": s.integer("size"), "stride": s.integer("stride"), "start": s.integer("start", 0)}
    net.finish(s, s.name, "cmpool", inputs, options)
    _sized(net, s, inputs)
    if outputs := s.integer("outputs", 0):
        net.checks.append(Check(s.name, s, "outputs", outputs))


def _norm(net: Conversion, s: Section, inputs: list[str]) -> None:
    """rnorm, cnorm and cmrnorm; rnorm with crossMap is cmrnorm, as cuda-convnet wrote it."""
    kind = s.text("type")
    if kind == "rnorm" and s.flag("crossMap", False):
        kind = "cmrnorm"
    size = s.integer("sizeX" if kind == "cnorm" and s.has("sizeX") else "size")
    options: Options = {"size": size, "scale": s.number("scale"), "pow": s.number("pow")}
    options |= {"min_div": s.number("minDiv")} if s.has("minDiv") else {}
    if kind == "cmrnorm":
        options |= {"blocked": True} if s.flag("blocked", False) else {}
    net.finish(s, s.name, kind, inputs, options)
    _sized(net, s, inputs)


def _dropout(net: Conversion, s: Section, inputs: list[str]) -> None:
    scale = {"scale": "eval"} if s.text("type") == "dropout2" else {}
    keep = s.number("keep", 0.5)
    net.finish(s, s.name, "dropout", inputs, {"keep": keep if s.flag("enable", True) else 1, **scale})


def _neuron(net: Conversion, s: Section, inputs: list[str]) -> None:
    net.names[s.name] = net.add(s, s.name, "neuron", inputs, {"kind": s.text("neuron").replace(" ", "")})


def _eltsum(net: Conversion, s: Section, inputs: list[str]) -> None:
    factors = s.values("coeffs", len(inputs), as_number, "a number", 1.0)
    options = {"coefficients": factors} if set(factors) != {1.0} else {}
    net.finish(s, s.name, "eltsum", inputs, options)


def _pass(net: Conversion, s: Section, inputs: list[str]) -> None:
    """Each GPU has a pass layer of its own over the same inputs: one is enough here."""
    if tuple(inputs) in net.joined and s.text("neuron", "ident") == "ident":
        net.names[s.name] = net.joined[tuple(inputs)]
        return
    net.finish(s, s.name, "pass", inputs, {})
    net.joined.setdefault(tuple(inputs), net.names[s.name])


def _crop(net: Conversion, s: Section, inputs: list[str]) -> None:
    x = s.integer("startX")
    start = [s.integer("startY", x), x]
    net.finish(s, s.name, "crop", inputs, {"start": start, "size": s.integer("sizeX")})
    _sized(net, s, inputs)


def _cost(net: Conversion, s: Section, inputs: list[str]) -> None:
    """The labels come first there, last here."""
    kind = s.text("type").removeprefix("cost.")
    options: Options = {"coeff": s.number("coeff")}
    if kind == "logreg":
        options["topk"] = s.integer("topk", 1)
    elif kind in ("bce", "dce"):
        options |= {"logits": False, "pos_weight": s.number("posWeight", 1.0)}
    if s.has("children"):
        net.notes.append(f"{s.name}: each of its children is reported by itself")
    if LABELS in inputs[1:]:
        raise s.error("expected the labels first", "inputs")
    net.finish(s, s.name, kind, inputs[::-1], options)


def _simple(kind: str, **options: tuple[str, str]) -> Callable[[Conversion, Section, list[str]], None]:
    """A layer whose options have other names: ours, then the type of value and theirs."""

    def convert(net: Conversion, s: Section, inputs: list[str]) -> None:
        read: dict[str, Callable[[str], Any]] = {
            "integer": s.integer,
            "number": s.number,
            "flag": lambda option: s.flag(option, False),
        }
        net.finish(s, s.name, kind, inputs, {ours: read[how](theirs) for ours, (how, theirs) in options.items()})
        _sized(net, s, inputs)

    return convert


CONVERTERS: dict[str, Callable[[Conversion, Section, list[str]], None]] = {
    "data": _data,
    "conv": filters,
    "local": filters,
    "fc": fully_connected,
    "sfc": fully_connected,
    "pool": _pool,
    "cmpool": _cmpool,
    "rnorm": _norm,
    "cmrnorm": _norm,
    "cnorm": _norm,
    "dropout": _dropout,
    "dropout2": _dropout,
    "neuron": _neuron,
    "softmax": _simple("softmax"),
    "eltsum": _eltsum,
    "eltmax": _simple("eltmax"),
    "concat": _simple("concat"),
    "pass": _pass,
    "nailbed": _simple("nailbed", stride=("integer", "stride")),
    "blur": _simple("blur", size=("integer", "filterSize"), stdev=("number", "stdev")),
    "href": _simple("href"),
    "resize": _simple("resize", scale=("number", "scale")),
    "rscale": _simple("rscale", max_scale=("number", "maxScale"), size=("integer", "tgtSize")),
    "crop": _crop,
    "rgb2yuv": _simple("rgb2yuv"),
    "rgb2lab": _simple("rgb2lab", center=("flag", "center")),
    "cost.logreg": _cost,
    "cost.crossent": _cost,
    "cost.bce": _cost,
    "cost.dce": _cost,
    "cost.sum2": _cost,
}
