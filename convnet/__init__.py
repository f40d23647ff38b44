"""convnet: trains convolutional networks from one YAML file."""

import os

# Before NumPy is imported. On a CPU the products are small: more BLAS threads gain little, and where other work
# shares the cores they wait for each other and lose a factor of ten. For a large network, set it yourself.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

__version__ = "0.1.0"
