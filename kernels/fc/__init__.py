"""Fully connected layers: y = w x + b, and its gradients."""

from kernels.fc.geometry import Fc
from kernels.fc.launch import BGRAD, DGRAD, FORWARD, WGRAD

__all__ = ["BGRAD", "DGRAD", "FORWARD", "WGRAD", "Fc"]
