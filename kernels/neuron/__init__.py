"""Elementwise neurons (activations): y = f(x) and dx = beta * dx + f'(x) dy.

Where a derivative can be written in terms of y, it is, so that x need not outlive the forward pass and y may take its
place; BACKWARD_X is for the other kinds. Where it is a constant, a scaled sum (kernels/eltwise) is the backward pass.
"""

from kernels.neuron.geometry import Neuron
from kernels.neuron.launch import BACKWARD, BACKWARD_X, FORWARD
from kernels.neuron.reference import FUNCTIONS, KINDS

__all__ = ["BACKWARD", "BACKWARD_X", "FORWARD", "FUNCTIONS", "KINDS", "Neuron"]
