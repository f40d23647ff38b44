"""Wiring: every mistake in a graph is an error that names the layer, before anything runs."""

import pytest

from convnet.graph.net import Network
from layers.base import Shape
from layers.options import ConfigError
from tests.convnet.networks import small, wire

DATA = {"type": "data", "channels": 1, "size": 8}
COST = {"type": "logreg", "inputs": ["fc", "labels"]}
FC = {"type": "fc", "outputs": 3}
POOL = {"type": "pool", "size": 2, "stride": 2}


@pytest.mark.parametrize(
    ("layers", "message", "path"),
    [
        (
            {"data": DATA, "pool": POOL, "fc": {**FC, "inputs": ["data"]}, "cost": COST},
            "nothing uses this layer's output",
            ("pool",),
        ),
        (
            {"data": {"type": "data", "size": 30000}, "fc": FC, "cost": COST},
            "expected an output of at most 2147483647 numbers a sample, found 3x30000x30000",
            ("data",),
        ),
        ({"data": DATA, "fc": FC}, "the network has no cost layer, such as logreg", ()),
        (
            {"data": DATA, "fc": {**FC, "inputs": ["data", "data"]}, "cost": COST},
            "expected 1 inputs, got 2",
            ("fc", "inputs"),
        ),
        ({"data": DATA, "fc": FC, "cost": {**COST, "inputs": ["fc"]}}, "expected 2 inputs, got 1", ("cost", "inputs")),
        (
            {
                "data": DATA,
                "fc": FC,
                "one": {"type": "fc", "outputs": 1, "inputs": ["data"]},
                "cost": {**COST, "inputs": ["fc", "one"]},
            },
            "expected labels, found layer 'one' of 1x1x1",
            ("cost", "inputs"),
        ),
        (
            {"data": DATA, "fc": FC, "cost": COST, "fc2": FC, "cost2": {**COST, "inputs": ["fc2", "labels"]}},
            "expected a layer that gives a map, found the cost 'cost'",
            ("fc2", "inputs"),
        ),
    ],
)
def test_a_wrong_graph_is_an_error_at_its_place(layers, message, path):
    with pytest.raises(ConfigError) as found:
        wire(**layers)
    assert found.value.message == message
    assert found.value.path == ("layers", *path)


def test_a_network_needs_a_cost_layer():
    with pytest.raises(ConfigError, match="no cost layer"):
        Network(())


def test_a_network_needs_weights():
    with pytest.raises(ConfigError, match="no layer with weights"):
        wire(data={**DATA, "channels": 3, "size": 1}, cost={**COST, "inputs": ["data", "labels"]})


def test_shapes_are_inferred():
    network = small()
    assert network["conv1"].shape == Shape(8, 10, 12)
    assert network["pool"].shape == Shape(8, 5, 6)
    assert network["fc1"].shape == Shape(20)
    assert network.outputs == 4


def test_maps_before_a_fully_connected_layer_are_laid_out_by_channel():
    layouts = small().layouts()
    assert layouts["drop"] == layouts["logistic"] == "chwn"
    assert layouts["pool"] == "hcwn"


def test_nothing_may_learn_below_a_layer_that_no_gradient_passes():
    layers = {"conv": {"type": "conv", "filters": 3, "size": 1}, "lab": {"type": "rgb2lab"}, "fc": FC, "cost": COST}
    network = wire(data=DATA, **layers)
    assert network.needing_gradient(["fc.weight"]) == {"fc", "cost"}
    with pytest.raises(ConfigError) as found:
        network.needing_gradient(network.params)
    assert str(found.value) == (
        "layer 'lab': no gradient passes a rgb2lab layer, but layer 'conv' below it learns;"
        " freeze that one (solver: {lr: 0}) or move this one in front of it"
    )


def test_log_loss_behind_a_softmax_reads_its_logits():
    network = wire(data=DATA, fc=FC, p={"type": "softmax"}, cost={"type": "logreg", "inputs": ["p", "labels"]})
    assert network["cost"].inputs == ("fc", "labels")
