"""Configuration: a YAML file to checked objects, and back."""

from convnet.config.build import build_config, build_layers, load_config
from convnet.config.describe import describe_layers, describe_options
from convnet.config.dump import differences, dump, fingerprint, leaves
from convnet.config.schema import Config, LayerSpec
from layers.options import ConfigError

__all__ = [
    "Config", "ConfigError", "LayerSpec", "build_config", "build_layers", "describe_layers",
    "describe_options", "differences", "dump", "fingerprint", "leaves", "load_config",
]  # fmt: skip
