"""Every operation of the registry is declared once its family is imported."""

import importlib

from kernels.op import FOLDER


def pytest_configure(config):
    for path in sorted(FOLDER.glob("*/__init__.py")):
        importlib.import_module(f"kernels.{path.parent.name}")
