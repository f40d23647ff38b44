"""Normalisation: local response (across maps: lrn; within a map: rnorm), contrast (cnorm) and batch.

Batch normalisation in training is batch_stats, then batch_forward. Its backward pass is batch_sums, then batch_dgrad
for the input, and batch_wgrad for the weight (from sum_dy_xhat) and for the bias (from sum_dy), each where wanted.
Over several batches, of which each rank has one, batch_moments and batch_join take the place of batch_stats: between
them the moments are added up, and before batch_dgrad the sums.
"""

from kernels.norm.geometry import BatchNorm, Cnorm, Lrn, Rnorm
from kernels.norm.launch import (
    BATCH_DGRAD,
    BATCH_FORWARD,
    BATCH_INFER,
    BATCH_JOIN,
    BATCH_MOMENTS,
    BATCH_STATS,
    BATCH_SUMS,
    BATCH_WGRAD,
    CNORM_BACKWARD,
    CNORM_FORWARD,
    LRN_BACKWARD,
    LRN_FORWARD,
    RNORM_BACKWARD,
    RNORM_FORWARD,
)

__all__ = [
    "BATCH_DGRAD",
    "BATCH_FORWARD",
    "BATCH_INFER",
    "BATCH_JOIN",
    "BATCH_MOMENTS",
    "BATCH_STATS",
    "BATCH_SUMS",
    "BATCH_WGRAD",
    "CNORM_BACKWARD",
    "CNORM_FORWARD",
    "LRN_BACKWARD",
    "LRN_FORWARD",
    "RNORM_BACKWARD",
    "RNORM_FORWARD",
    "BatchNorm",
    "Cnorm",
    "Lrn",
    "Rnorm",
]
