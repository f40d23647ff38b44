"""convnet: trains convolutional networks from one YAML file."""

import os

from convnet.cpus import available_cpus

__version__ = "0.1.0"

# Before NumPy is imported. The threads of a BLAS product wait for each other without sleeping: with one for each
# processor, any other work (decoding, another program) leaves one of them without, and a product takes 3 to 20 times as
# long. Half as many gain nearly as much, since two processors are mostly one core. Whoever sets a number has it.
if "OMP_NUM_THREADS" not in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", str(max(1, available_cpus() // 2)))
