"""Everything public is documented, and nothing unfinished or tied to one machine is left in the files."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("kernels", "layers", "convnet")
PYTHON = [p.relative_to(ROOT).as_posix() for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]
CUDA = [p.relative_to(ROOT).as_posix() for p in sorted((ROOT / "kernels").rglob("*.cu*"))]
WRITTEN = ("*.py", "*.cu", "*.cuh", "*.md", "*.sh", "*.toml", "*.yaml")
UNWANTED = re.compile(r"\b(TO(?:)DO|FIX(?:)ME|X{3})\b|(?<![\w.}/$-])/(home|root|work|mnt|Users)/\w")


def undocumented(text: str) -> list[str]:
    """Names of the public classes and functions at module level without a docstring.

    The plans of kernel variants are described where the kernel is: in the header of its .cu file.
    """
    tree = ast.parse(text)
    missing = [] if ast.get_docstring(tree) else ["the module"]
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            plan = any(".variant(" in ast.unparse(decorator) for decorator in node.decorator_list)
            if not plan and not ast.get_docstring(node):
                missing.append(node.name)
    return missing


@pytest.mark.parametrize("path", PYTHON)
def test_public_names_have_a_docstring(path):
    assert not undocumented((ROOT / path).read_text())


def test_a_missing_docstring_is_found():
    text = "class A: ...\ndef _f(): ...\ndef g(): ...\n@OP.variant('a.cu')\ndef plan(g): ..."
    assert undocumented(text) == ["the module", "A", "g"]


@pytest.mark.parametrize("path", CUDA)
def test_kernel_files_begin_with_their_header(path):
    assert (ROOT / path).read_text().startswith("// ")


def written_files():
    """Every text file of ours; not what .gitignore names."""
    folders = (*PACKAGES, "scripts", "tests", "configs", "docs", "benchmarks", ".ci")
    nested = (p for folder in folders for pattern in WRITTEN for p in (ROOT / folder).rglob(pattern))
    return sorted({*nested, *(p for pattern in WRITTEN for p in ROOT.glob(pattern)), ROOT / ".ci/run"})


def test_nothing_unfinished_and_no_path_of_one_machine():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in written_files()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if UNWANTED.search(line)
    ]
    assert not found
    assert UNWANTED.search("see /" + "home/me/data") and UNWANTED.search("# TO" + "DO")


def test_links_in_the_documents_lead_somewhere():
    broken = []
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "kernels").rglob("*.md")]:
        for link in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", document.read_text()):
            if not (document.parent / link).exists():
                broken.append(f"{document.relative_to(ROOT)}: {link}")
    assert not broken
