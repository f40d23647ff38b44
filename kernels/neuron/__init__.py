"""Elementwise neurons (activations): y = f(x) and dx = beta * dx + f'(x) dy.

Each derivative is written in terms of y, so that x need not outlive the forward pass and y may take its place.
"""

from kernels.neuron.geometry import Neuron
from kernels.neuron.launch import BACKWARD, FORWARD
from kernels.neuron.reference import KINDS

__all__ = ["BACKWARD", "FORWARD", "KINDS", "Neuron"]
