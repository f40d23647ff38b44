"""convnet: trains convolutional networks from one YAML file."""

__version__ = "0.1.0"
