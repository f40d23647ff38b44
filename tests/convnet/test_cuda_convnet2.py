"""Networks of cuda-convnet2: every layer type, rates, towers, and mistakes with their place in the .cfg."""

from pathlib import Path

import pytest
import yaml

from convnet.config import ConfigError, load_config
from convnet.errors import UserError
from convnet.formats.cuda_convnet2 import import_network
from convnet.formats.cuda_convnet2.cfg import read_cfg
from convnet.formats.cuda_convnet2.rates import Rate, read_rate
from convnet.session import make_network
from tests.convnet.toy import convnet

HEAD = "[data]\ntype=data\ndataIdx=0\n[labels]\ntype=data\ndataIdx=1\n"
FC = "[fc]\ntype=fc\noutputs=16\ninputs={}\n"
TAIL = FC + "[probs]\ntype=softmax\ninputs=fc\n[cost]\ntype=cost.logreg\ninputs=labels,probs\n"
LEARN = "epsW=0.01\nepsB=0.02\nmomW=0.9\nmomB=0.9\nwc=0.001\n"
PARAMS = f"[fc]\n{LEARN}[cost]\ncoeff=1\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def convert(layers, params=PARAMS, *, size=20):
    """The config as loaded YAML, and the notes; the network is made, which checks all of it."""
    Path("l.cfg").write_text(layers)
    Path("p.cfg").write_text(params)
    if Path("net.yaml").is_file():
        Path("net.yaml").unlink()
    notes = import_network(Path("l.cfg"), Path("p.cfg"), Path("net.yaml"), size=size, data="d", epochs=7)
    make_network(load_config("net.yaml"))
    return yaml.safe_load(Path("net.yaml").read_text()), notes


def section(name, text, inputs="data"):
    lines = "".join(f"{option}\n" for option in text.split())
    return f"[{name}]\ninputs={inputs}\n{lines}"


def converted(text, params="", *, before="", source="data"):
    """What one layer becomes."""
    layers = HEAD + before + section("x", text, source) + TAIL.format("x")
    return convert(layers, f"[x]\n{params}\n" * bool(params) + PARAMS)[0]["layers"]["x"]


GAUSS = {"init": {"type": "gaussian", "std": 0.01}}


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        ("type=conv filters=16 filterSize=5 channels=3 padding=2 stride=2 sumWidth=4 initW=0.1 initB=1 neuron=relu",
         LEARN,
         {"type": "conv", "filters": 16, "size": 5, "stride": 2, "pad": 2, "rounding": "convnet", "neuron": "relu",
          "init": {"type": "gaussian", "std": 0.1}, "init_bias": {"type": "constant", "value": 1}}),
        ("type=conv filters=8 groups=3 filterSize=3 channels=3 sharedBiases=false partialSum=1", LEARN,
         {"type": "conv", "filters": 24, "groups": 3, "size": 3, "rounding": "convnet", "shared_biases": False,
          **GAUSS}),
        ("type=local FILTERS=4 filtersize=3 channels=3 modulesX=18 initW=0.04", LEARN,
         {"type": "local", "filters": 4, "size": 3, "rounding": "convnet", "init": {"type": "gaussian", "std": 0.04}}),
        ("type=fc outputs=30 initW=2 neuron=tanh[1.7,-0.6]", LEARN,
         {"type": "fc", "outputs": 30, "init": {"type": "gaussian", "std": 2}, "neuron": "tanh[1.7,-0.6]"}),
        ("type=sfc outputs=5 parts=4", LEARN, {"type": "sfc", "outputs": 5, "parts": 4, **GAUSS}),
        ("type=pool pool=max sizeX=3 stride=2 channels=3 outputsX=10", "",
         {"type": "pool", "mode": "max", "size": 3, "stride": 2, "rounding": "convnet"}),
        ("type=pool pool=avg sum=1 start=-1 sizeX=4 stride=3 neuron=ident", "",
         {"type": "pool", "mode": "sum", "size": 4, "stride": 3, "start": -1, "rounding": "convnet"}),
        ("type=pool pool=maxabs sizeX=2 stride=2", "", {"type": "pool", "mode": "maxabs", "size": 2, "stride": 2,
                                                        "rounding": "convnet"}),
        ("type=cmpool pool=max size=2 stride=1 channels=3 outputs=2", "",
         {"type": "cmpool", "size": 2, "stride": 1, "start": 0}),
        ("type=rnorm size=3 channels=3", "scale=0.00005\npow=.75",
         {"type": "rnorm", "size": 3, "scale": 5e-5, "pow": 0.75}),
        ("type=rnorm size=3 channels=3 crossMap=1", "scale=0.5\npow=1\nminDiv=2",
         {"type": "cmrnorm", "size": 3, "scale": 0.5, "pow": 1, "min_div": 2}),
        ("type=cmrnorm size=3 blocked=true", "scale=1\npow=0.75",
         {"type": "cmrnorm", "size": 3, "scale": 1, "pow": 0.75, "blocked": True}),
        ("type=cnorm sizeX=7", "scale=0.001\npow=0.5", {"type": "cnorm", "size": 7, "scale": 0.001, "pow": 0.5}),
        ("type=dropout", "enable=true\nkeep=0.75", {"type": "dropout", "keep": 0.75}),
        ("type=dropout2 keep=0.3", "enable=false", {"type": "dropout", "keep": 1, "scale": "eval"}),
        ("type=neuron neuron=brelu[6]", "", {"type": "neuron", "kind": "brelu[6]"}),
        ("type=softmax", "", {"type": "softmax"}),
        ("type=pass", "", {"type": "pass"}),
        ("type=nailbed stride=3 channels=3", "", {"type": "nailbed", "stride": 3}),
        ("type=blur filterSize=5 stdev=1.5 channels=3", "", {"type": "blur", "size": 5, "stdev": 1.5}),
        ("type=href channels=3", "", {"type": "href"}),
        ("type=resize scale=1.25 channels=3", "", {"type": "resize", "scale": 1.25}),
        ("type=rscale maxScale=1.25 tgtSize=16 channels=3", "", {"type": "rscale", "max_scale": 1.25, "size": 16}),
        ("type=crop startX=2 startY=3 sizeX=8 channels=3", "", {"type": "crop", "start": [3, 2], "size": 8}),
        ("type=rgb2yuv", "", {"type": "rgb2yuv"}),
        ("type=rgb2lab center=1", "", {"type": "rgb2lab", "center": True}),
    ],
)  # fmt: skip
def test_each_layer(text, params, expected):
    found = converted(text, params)
    assert found.pop("inputs") == "data"
    assert found == expected


@pytest.mark.parametrize(
    ("text", "params", "expected"),
    [
        ("type=eltsum coeffs=0.5,-1", "", {"type": "eltsum", "coefficients": [0.5, -1]}),
        ("type=eltsum", "coeffs=1,1", {"type": "eltsum"}),
        ("type=eltmax neuron=square", "", {"type": "eltmax", "neuron": "square"}),
        ("type=concat", "", {"type": "concat"}),
    ],
)
def test_layers_with_several_inputs(text, params, expected):
    found = converted(text, params, before=section("r", "type=href"), source="data, r")
    assert found.pop("inputs") == ["data", "r"]
    assert found == expected


def costs(text, labels="labels", index=1, neuron=""):
    head = HEAD.replace("dataIdx=1", f"dataIdx={index}")
    tail = TAIL.format("data").replace("outputs=16", f"outputs=16\n{neuron}")
    layers = head + tail + section("more", text, f"{labels},fc" if labels else "fc")
    return convert(layers, PARAMS + "[more]\ncoeff=0\n")


def test_costs():
    assert convert(HEAD + TAIL.format("data"), PARAMS + "topk=5\n")[0]["layers"]["cost"] == {
        "type": "logreg", "inputs": ["probs", "labels"], "coeff": 1, "topk": 5,
    }  # fmt: skip
    config, notes = costs("type=cost.bce posWeight=2", index=2, neuron="neuron=logistic")
    assert config["layers"]["more"] == {
        "type": "bce", "inputs": ["fc", "labels"], "coeff": 0, "logits": False, "pos_weight": 2,
    }  # fmt: skip
    assert notes == ["labels: the matrix of labels becomes one label for each image"]
    assert costs("type=cost.dce", neuron="neuron=logistic")[0]["layers"]["more"]["type"] == "dce"
    assert costs("type=cost.sum2", labels="")[0]["layers"]["more"] == {"type": "sum2", "inputs": "fc", "coeff": 0}


def test_a_layer_of_several_inputs_becomes_layers_and_their_sum():
    before = section("a", "type=href") + section("b", "type=pool pool=max sizeX=1 stride=1")
    text = section("c", "type=conv filters=8,4 groups=1,2 filterSize=3,5 padding=1,2 channels=3,4 initW=0.1,0.2 "
                        "initB=1 neuron=relu", "a,d")  # fmt: skip
    d = section("d", "type=conv filters=4 filterSize=1 channels=3", "b")
    params = f"[d]\n{LEARN}[c]\n{LEARN.replace('wc=0.001', 'wc=0.001,0.5')}" + PARAMS
    layers = convert(HEAD + before + d + text + TAIL.format("c"), params)[0]["layers"]
    assert layers["c.0"]["inputs"] == "a" and layers["c.0"]["init_bias"] == {"type": "constant", "value": 1}
    assert layers["c.1"] == {
        "type": "conv", "inputs": "d", "filters": 8, "size": 5, "pad": 2, "groups": 2, "rounding": "convnet",
        "init": {"type": "gaussian", "std": 0.2}, "bias": False, "solver": {"weight_decay": 0.5},
    }  # fmt: skip
    assert layers["c"] == {"type": "eltsum", "inputs": ["c.0", "c.1"], "neuron": "relu"}


def test_shared_weights():
    a = section("a", "type=fc outputs=6 initW=0.1,0.2", "data,data")
    b = section("b", "type=fc outputs=6 weightSource=a[1],", "data,data")
    c = section("c", "type=fc outputs=6 weightSource=a", "data")
    d = section("d", "type=concat", "a,b,c")
    params = "".join(f"[{name}]\n{LEARN}" for name in "abc") + PARAMS
    layers = convert(HEAD + a + b + c + d + TAIL.format("d"), params)[0]["layers"]
    assert layers["b.0"]["share"] == "a.1" and "init" not in layers["b.0"]
    assert "share" not in layers["b.1"] and layers["c"]["share"] == "a.0"


def test_what_is_said_of_the_weights_of_another_has_no_effect():
    a = section("a", "type=fc outputs=6", "data")
    b = section("b", "type=fc outputs=6 weightSource=a,a", "data,data")
    c = section("c", "type=concat", "a,b")
    own = "epsW=0.5\nepsB=0.02\nmomW=0.1\nmomB=0.8\nwc=0.7\nwball=2\nupdatePeriod=3\n"
    config, notes = convert(HEAD + a + b + c + TAIL.format("c"), f"[a]\n{LEARN}[b]\n{own}" + PARAMS)
    assert config["layers"]["b.0"]["solver"] == {"momentum": 0.8, "update_every": 3}
    assert "solver" not in config["layers"]["b.1"] and not config["layers"]["b.1"]["bias"]
    told = "there its epsW weighs its part of the gradient of a's weights; here they have one rate"
    assert notes == [f"b.{i}: {told}" for i in range(2)]


def test_the_rate_of_another_layer_of_the_same_convolution_has_no_effect_there_either():
    a = section("a", "type=conv filters=4 filterSize=3 channels=3")
    b = section("b", "type=conv filters=4 filterSize=3 channels=3 weightSource=a")
    fcs = "".join(section(n, f"type=fc outputs=6 weightSource={s}", "a") for n, s in (("d", "c"), ("e", "d")))
    c, joined = section("c", "type=fc outputs=6", "a"), section("f", "type=concat", "c,d,e")
    layers = (
        HEAD + a + b + c + fcs + section("g", "type=fc outputs=6", "b") + joined + section("h", "type=concat", "f,g")
    )
    rates = {"b": 0.5, "e": 0.5}  # that of d is that of c
    params = "".join(f"[{n}]\n{LEARN.replace('epsW=0.01', f'epsW={rates.get(n, 0.01)}')}" for n in "abcdeg")
    _, notes = convert(layers + TAIL.format("h"), params + PARAMS)
    assert [note.partition(";")[0] for note in notes] == [
        "e: there its epsW weighs its part of the gradient of c's weights"
    ]


def test_rates():
    dexp = "dexp[base=0.01;tgtFactor=250;numSteps=4]"
    layers = HEAD + "".join(section(n, "type=fc outputs=6", i) for n, i in (("a", "data"), ("b", "a"), ("c", "b")))
    own = f"epsW={dexp}\nepsB=DEXP[ base = .02; tgtFactor=10;numsteps=2 ]\nmomW=0.9\nmomB=0.9\nwc=0.0005\n"
    other = "epsW=0.1\nepsB=0.02\nmomW=0.5\nmomB=0.8\nwc=0\nwball=3\nupdatePeriod=4\nsuperEps=1\n"
    params = f"[a]\n{own}[b]\n{own}[c]\n{other}[fc]\n{own}[cost]\ncoeff=1\n"
    config, notes = convert(layers + TAIL.format("c"), params)
    assert config["solver"] == {
        "lr": 0.01, "lr_bias": 0.02, "momentum": 0.9, "weight_decay": 0.0005,
        "schedule": {"type": "dexp", "factor": 250, "steps": 4},
        "schedule_bias": {"type": "dexp", "factor": 10, "steps": 2},
    }  # fmt: skip
    assert "solver" not in config["layers"]["a"]
    assert config["layers"]["c"]["solver"] == {
        "lr": 0.1, "lr_bias": 0.02, "weight_decay": 0, "momentum": 0.5, "wball": 3, "update_every": 4,
    }  # fmt: skip
    assert len(notes) == 3 and notes[2] == "c: biases have the momentum of weights, 0.5, not 0.8"
    assert notes[0] == "c: its weights follow constant there, dexp with factor 250, steps 4 here"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.02", Rate(0.02)),
        ("const[base=1e-3]", Rate(0.001)),
        ("linear[base=2;tgtFactor=10]", Rate(2, "linear", 10)),
        ("exp[tgtFactor=8;base=0.5]", Rate(0.5, "exp", 8)),
        ("dexp[base=1;tgtFactor=2]", None),
        ("dexp[base=1;tgtFactor=0;numSteps=2]", None),
        ("step[base=1]", None),
        ("fast", None),
    ],
)
def test_reading_a_rate(text, expected):
    assert read_rate(text) == expected


TOWERS = (
    HEAD
    + section("conv", "type=conv filters=8 filterSize=3 channels=3 gpu=0,1")
    + section("fca", "type=fc outputs=4 neuron=relu gpu=0", "conv")
    + section("fcb", "type=fc outputs=4 neuron=relu gpu=1", "conv")
    + section("pa", "type=pass gpu=0", "fca,fcb")
    + section("pb", "type=pass gpu=1", "fca,fcb")
    + section("ga", "type=fc outputs=5 gpu=0", "pa")
    + section("gb", "type=fc outputs=5 gpu=1", "pb")
    + section("p", "type=pass gpu=0", "ga,gb")
    + TAIL.format("p")
)


def test_towers_become_one_network():
    params = "".join(f"[{name}]\n{LEARN}updatePeriod=2\n" for name in ("conv", "fca", "fcb", "ga", "gb")) + PARAMS
    config, notes = convert(TOWERS, params)
    layers = config["layers"]
    assert layers["pa"]["inputs"] == ["fca", "fcb"] and "pb" not in layers
    assert layers["gb"]["inputs"] == "pa"
    assert config["parallel"] == {"conv": "data", "fc": "data"}
    assert (
        notes[-1] == "it ran on 2 GPUs, a layer in 1 or 2 replicas; here it is one network, and `parallel` spreads it"
    )
    assert "fca: updatePeriod=2 counts parts of a batch there; here each batch is an update" in notes
    assert all(f"# {note}" in Path("net.yaml").read_text() for note in notes)


def test_layers_on_one_gpu_each_run_on_ranks():
    """GPUs 1 and 3 are ranks 0 and 1; the cost, and what reads images, says nothing and is everybody's."""
    text = TOWERS.replace("gpu=0,1", "gpu=3").replace("gpu=1", "gpu=3").replace("gpu=0", "gpu=1")
    params = "".join(f"[{name}]\n{LEARN}" for name in ("conv", "fca", "fcb", "ga", "gb")) + PARAMS
    config, notes = convert(text, params)
    found = {name: layer.get("ranks") for name, layer in config["layers"].items()}
    one = {"fca": [0], "fcb": [1], "pa": [0], "ga": [0], "gb": [1], "conv": [1]}
    assert {name: ranks for name, ranks in found.items() if ranks} == one | {key: [0] for key in ("p", "fc", "probs")}
    assert notes[-1] == "it ran on 2 GPUs, a layer on one of them; so it does on as many ranks, by its `ranks`"


def test_data_is_said_on_the_command_line():
    config, _ = convert(HEAD + section("x", "type=conv filters=4 filterSize=3 channels=1") + TAIL.format("x"),
                        f"[x]\n{LEARN}" + PARAMS, size=28)  # fmt: skip
    assert config["layers"]["data"] == {"type": "data", "channels": 1, "size": 28}
    assert config["data"]["train"]["path"] == "d/train" and config["data"]["mean"] == [127.5]
    assert config["train"] == {"batch_size": 128, "epochs": 7} and "parallel" not in config


def test_reading_a_cfg():
    text = "# note\n\n; note\n[ a b ]\nType = conv ; not ; this\nx:1\ny=1,\n  2\n[c]\n"
    Path("a.cfg").write_text(text)
    found = read_cfg(Path("a.cfg"))
    assert list(found) == ["a b", "c"]
    assert {e.name: (e.text, e.place) for e in found["a b"].entries.values()} == {
        "Type": ("conv", "a.cfg:5"), "x": ("1", "a.cfg:6"), "y": ("1, 2", "a.cfg:7"),
    }  # fmt: skip


CONV = "[x]\ntype=conv\ninputs=data\nfilters=8\nfilterSize=3\nchannels=3\n"  # lines 7 to 12 behind HEAD


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("filters=8", "filtres=8", "l.cfg:7: layer 'x': option 'filters' is missing; expected an integer"),
        ("filters=8", "filters=8\nfiltres=8", "l.cfg:11: layer 'x': unknown option 'filtres' of a conv layer; did you "
         "mean 'filters'? ("),
        ("filters=8", "filters=many", "l.cfg:10: layer 'x': filters: expected an integer, found 'many'"),
        ("filters=8", "filters=3e9", "l.cfg:10: layer 'x': filters: expected an integer, found '3e9'; the largest "
         "number is 2147483647"),
        ("filters=8", "filters=8,8", "l.cfg:10: layer 'x': filters: expected 1 values, one for each input, found 2"),
        ("filters=8", "filters=8\nFILTERS=9", "l.cfg:11: layer 'x': FILTERS: given twice; the first is at l.cfg:10"),
        (FC.format("x"), "[y]\ntype=href\nchannels=4\ninputs=x\n" + FC.format("y"), "l.cfg:15: layer 'y': channels: "
         "the converted layer has 8, found 4"),
        ("channels=3", "channels=3\nmodulesX=9", "l.cfg:13: layer 'x': modulesX: the converted layer has 18, found 9"),
        ("channels=3", "channels=3\nsharedBiases=perhaps", "l.cfg:13: layer 'x': sharedBiases: expected true or false, "
         "found 'perhaps'"),
        ("channels=3", "channels=3\ninitWFunc=a.b()", "l.cfg:13: layer 'x': initWFunc: cannot be converted"),
        ("channels=3", "channels=3\nweightSource=y", "l.cfg:13: layer 'x': weightSource: expected a conv layer above, "
         "found 'y'"),
        ("channels=3", "channels=3\ngroups=2", "l.cfg:7: layer 'x': groups 2 does not divide the 3 channels"),
        ("channels=3", "channels=3\nneuron=relu6", "l.cfg:7: layer 'x': neuron: "),
        ("channels=3", "channels=3\nneuron", "l.cfg:13: expected [section] or option=value, found 'neuron'"),
        ("type=conv", "type=conf", "l.cfg:8: layer 'x': type: unknown layer type 'conf'; did you mean 'conv'? ("),
        ("type=conv\n", "", "l.cfg:7: layer 'x': option 'type' is missing; expected text"),
        ("inputs=data", "inputs=date", "l.cfg:9: layer 'x': inputs: 'date' is not a layer above; did you mean 'data'?"),
        ("inputs=data\n", "", "l.cfg:7: layer 'x': option 'inputs' is missing; expected names of layers"),
        ("inputs=data", "inputs=data\ngpu=a", "l.cfg:10: layer 'x': gpu: expected numbers of GPUs"),
        ("[x]", "[labels]", "l.cfg:7: a second section [labels]; the first is at l.cfg:4"),
        ("[data]", "type=x\n[data]", "l.cfg:1: expected [section], found 'type=x'"),
        ("dataIdx=0", "dataIdx=3", "l.cfg:3: layer 'data': dataIdx: expected 0 (images)"),
        ("dataIdx=0", "dataIdx=0\nstart=4", "l.cfg:4: layer 'data': start: parts of the data cannot be chosen here"),
    ],
)  # fmt: skip
def test_mistakes(old, new, expected):
    layers = HEAD + CONV + TAIL.format("x")
    assert layers.count(old) >= 1
    with pytest.raises(ConfigError) as caught:
        convert(layers.replace(old, new, 1), f"[x]\n{LEARN}" + PARAMS)
    assert str(caught.value).startswith(expected)
    assert sorted(path.name for path in Path().iterdir()) == ["l.cfg", "p.cfg"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "epsW=0.01",
            "epsW=quick",
            "p.cfg:2: layer 'x': epsW: expected a number, or const, linear, exp or dexp such as",
        ),
        (
            "epsW=0.01",
            "epsW=1e300",
            "p.cfg:2: layer 'x': epsW: expected a number, or const, linear, exp or dexp such as ",
        ),
        ("epsW=0.01", "epsW=1e39", "p.cfg:2: layer 'x': epsW: expected a number, or const"),
        ("epsW=0.01", "epsW=exp[base=1;tgtFactor=1e39]", "p.cfg:2: layer 'x': epsW: expected a number, or const"),
        ("wc=0.001", "wc=-1e39", "p.cfg:6: layer 'x': wc: expected a number, found '-1e39'; the largest number is 3.4"),
        ("epsW=0.01\n", "", "l.cfg:7: layer 'x': option 'epsW' is missing; expected a number, or const"),
        ("wc=0.001", "wd=0.001", "p.cfg:6: layer 'x': unknown option 'wd' of a conv layer; "),
        ("coeff=1\n", "", "l.cfg:20: layer 'cost': option 'coeff' is missing; expected a number"),
    ],
)
def test_mistakes_in_parameters(old, new, expected):
    with pytest.raises(ConfigError) as caught:
        convert(HEAD + CONV + TAIL.format("x"), (f"[x]\n{LEARN}" + PARAMS).replace(old, new, 1))
    assert str(caught.value).startswith(expected)


def test_a_section_without_a_layer_is_noted():
    _, notes = convert(HEAD + TAIL.format("data"), PARAMS + "[drop]\nkeep=1\n")
    assert notes == ["p.cfg:9: no layer is called 'drop'"]


@pytest.mark.parametrize("text", ["", "# nothing\n", "[labels]\ntype=data\ndataIdx=1\n"])
def test_a_file_without_layers(text):
    with pytest.raises(ConfigError, match=r"^l\.cfg: expected sections of layers, found none with"):
        convert(text, "")


def test_the_command():
    Path("l.cfg").write_text(TOWERS.replace("filters=8", "filters=x"))
    Path("p.cfg").write_text("")
    command = ("import", "cuda-convnet2", "l.cfg", "p.cfg", "-o", "net.yaml", "--size", "20")
    _, error = convnet(*command, cwd=".", code=2)
    assert error == "l.cfg:10: layer 'conv': filters: expected an integer, found 'x'\n"
    Path("l.cfg").write_text(TOWERS)
    Path("p.cfg").write_text("".join(f"[{name}]\n{LEARN}" for name in ("conv", "fca", "fcb", "ga", "gb")) + PARAMS)
    out, error = convnet(*command, cwd=".")
    assert out.startswith("net.yaml: l.cfg as a config") and error.startswith("warning: it ran on 2 GPUs")


def test_a_config_that_is_there_stays():
    Path("mine.yaml").write_text("mine")
    with pytest.raises(UserError, match=r"^mine\.yaml: is there already; nothing is written$"):
        import_network(Path("l.cfg"), Path("p.cfg"), Path("mine.yaml"), size=20, data="d", epochs=7)
    assert Path("mine.yaml").read_text() == "mine"


def test_a_folder_in_place_of_the_config():
    Path("net.yaml").mkdir()
    with pytest.raises(UserError, match=r"^net\.yaml: is a folder; expected the name of a file$"):
        convert(HEAD + TAIL.format("data"))
    assert not Path(".writing-net.yaml").exists()


def test_a_mark_of_byte_order_and_windows_line_ends():
    text = HEAD + TAIL.format("data")
    plain = convert(text)
    assert convert("\ufeff" + text.replace("\n", "\r\n")) == plain
