"""The configs of published networks: sizes as published, recipe, source and result in the header."""

import math
from pathlib import Path

import pytest

from convnet.config import load_config
from convnet.session import make_network

CONFIGS = Path(__file__).parents[2] / "configs"
PARAMETERS = {  # torchvision's model pages; AlexNet of 2012: 60 million in the paper, counted from its layers
    "alexnet": 60_965_224,
    "alexnet-owt": 61_100_840,
    "cuda-convnet2-1gpu": 61_100_840,
    "vgg16": 138_357_544,
    "resnet18": 11_689_512,
    "resnet50": 25_557_032,
    "resnet152": 60_192_808,
    "squeezenet1_1": 1_235_496,
}
PUBLISHED = sorted([*(CONFIGS / "imagenet").glob("*.yaml"), *(CONFIGS / "cifar10").glob("*pct.yaml")])
SIZES = {  # the maps that the last fully connected or global layer reads
    "imagenet/alexnet": "256x6x6",
    "imagenet/alexnet-owt": "256x6x6",
    "imagenet/cuda-convnet2-1gpu": "256x6x6",
    "imagenet/vgg16": "512x7x7",
    "imagenet/resnet50": "2048x7x7",
    "imagenet/squeezenet1_1": "1000x13x13",
    "cifar10/26pct": "64x4x4",
    "cifar10/18pct": "64x4x4",
    "cifar10/13pct": "32x6x6",
    "cifar10/11pct": "32x6x6",
}


def network(name):
    return make_network(load_config(CONFIGS / f"{name}.yaml"))


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_published(name):
    params = network(f"imagenet/{name}").params.values()
    assert sum(math.prod(param.shape) for param in params) == PARAMETERS[name]


def test_every_imagenet_config_is_counted():
    assert {path.stem for path in (CONFIGS / "imagenet").iterdir()} == set(PARAMETERS)


@pytest.mark.parametrize("name", SIZES)
def test_last_maps(name):
    shapes = [str(node.shape) for node in network(name).nodes.values() if node.shape.height > 1]
    assert shapes[-1] == SIZES[name]


@pytest.mark.parametrize("path", PUBLISHED, ids=lambda path: path.stem)
def test_headers_tell_source_and_result(path):
    head = path.read_text().split("\n", 12)
    comment = "\n".join(line for line in head if line.startswith("#"))
    assert "# Source: " in comment and "# Published: " in comment
    assert len(path.read_text().splitlines()) < 60
