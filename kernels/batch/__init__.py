"""Batches cut in shares and put together again: between maps of some samples and buffers that ranks exchange."""

from kernels.batch.geometry import Labels, Shares
from kernels.batch.launch import JOIN, LABELS, SPLIT

__all__ = ["JOIN", "LABELS", "SPLIT", "Labels", "Shares"]
