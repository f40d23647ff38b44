"""Softmax, the multinomial logistic cost with its error rates, and the record of a step's costs."""

from kernels.cost.geometry import Logreg, Report, Softmax
from kernels.cost.launch import LOGREG_BACKWARD, LOGREG_FORWARD, REPORT, SOFTMAX_BACKWARD, SOFTMAX_FORWARD

__all__ = [
    "LOGREG_BACKWARD",
    "LOGREG_FORWARD",
    "REPORT",
    "SOFTMAX_BACKWARD",
    "SOFTMAX_FORWARD",
    "Logreg",
    "Report",
    "Softmax",
]
