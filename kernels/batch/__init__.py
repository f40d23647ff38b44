"""Batches cut in shares and put together again: between maps of some samples and buffers that ranks exchange."""

from kernels.batch.geometry import Labels, Shares
from kernels.batch.launch import AMOUNTS, JOIN, LABELS, SPLIT

__all__ = ["AMOUNTS", "JOIN", "LABELS", "SPLIT", "Labels", "Shares"]
