"""Imports go one way, kernels <- layers <- convnet, and what is optional is imported only where it is used."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDER = ("kernels", "layers", "convnet")
RUNTIME = {"numpy", "yaml", "PIL", "tqdm", "safetensors"}  # the dependencies in pyproject.toml, as they are imported
FILES = [path for package in ORDER for path in sorted((ROOT / package).rglob("*.py"))]


def imports(tree: ast.AST, inside: bool = False):
    """(line, module, inside a function) of every import."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name, inside) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or ""), inside
        yield from imports(node, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def faults(path: str, text: str) -> list[str]:
    """What `path`, relative to the root, may not import."""
    found, package = [], path.split("/")[0]
    above = ORDER[ORDER.index(package) + 1 :]
    for line, module, inside in imports(ast.parse(text)):
        top = module.split(".")[0]
        if module.startswith("."):
            found.append(f"{path}:{line}: imports are absolute, got '{module}'")
        elif top in above:
            found.append(f"{path}:{line}: {package} may not import {top}")
        elif top == "cupy" and (path, inside) != ("kernels/backend.py", True):
            found.append(f"{path}:{line}: cupy is reached through kernels.backend.cupy()")
        elif not inside and top not in {*ORDER, *RUNTIME, *sys.stdlib_module_names}:
            found.append(f"{path}:{line}: {top} is optional: import it in the function that needs it")
    return found


@pytest.mark.parametrize("path", [path.relative_to(ROOT).as_posix() for path in FILES])
def test_imports(path):
    assert not faults(path, (ROOT / path).read_text())


@pytest.mark.parametrize(
    "path, text",
    [
        ("kernels/a.py", "import layers.conv"),
        ("kernels/a.py", "def f():\n    from convnet.graph import net"),
        ("layers/a.py", "if True:\n    from convnet import cli"),
        ("layers/a.py", "def f():\n    import cupy as cp"),
        ("kernels/backend.py", "import cupy"),
        ("convnet/a.py", "import matplotlib.pyplot as plt"),
        ("convnet/a.py", "from .graph import net"),
    ],
)
def test_a_wrong_import_is_found(path, text):
    assert len(faults(path, text)) == 1


def test_right_imports_pass():
    text = "import os\nimport yaml\nfrom layers.base import Layer\ndef f():\n    import matplotlib"
    assert not faults("convnet/a.py", text)
    assert not faults("kernels/backend.py", "def cupy():\n    import cupy\n    return cupy")
