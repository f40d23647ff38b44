"""The ledger of size: files, lines and function lengths of each folder. It reports; it forbids nothing.

Lines are lines with code: neither blank nor comment alone. A function is a Python def, or in CUDA a kernel.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kernels", "layers", "convnet", "scripts", "tests")
KERNEL = re.compile(r"^extern \"C\" __global__.*?^}", re.MULTILINE | re.DOTALL)


def lines(text: str) -> int:
    """Lines that are neither blank nor a comment alone."""
    return sum(bool(line.strip()) and not line.lstrip().startswith(("#", "//")) for line in text.splitlines())


def functions(path: Path, text: str) -> list[tuple[int, str]]:
    """(length in lines, name) of each function of a file."""
    if path.suffix != ".py":
        return [(kernel.group().count("\n") + 1, path.name) for kernel in KERNEL.finditer(text)]
    defs = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    return [((node.end_lineno or node.lineno) - node.lineno + 1, f"{path.name}:{node.name}") for node in defs]


def row(folder: Path, suffixes: tuple[str, ...]) -> str:
    """One line of the ledger; empty for a folder without such files."""
    texts = {p: p.read_text() for p in sorted(folder.rglob("*")) if p.suffix in suffixes}
    if not texts:
        return ""
    sizes = sorted(lines(text) for text in texts.values())
    lengths = sorted(found for path, text in texts.items() for found in functions(path, text))
    name = f"{folder.relative_to(ROOT)} {suffixes[0]}"
    longest, where = lengths[-1] if lengths else (0, "")
    middle, tenth = (lengths[int(len(lengths) * share)][0] if lengths else 0 for share in (0.5, 0.9))
    return (
        f"{name:24}{len(sizes):6}{sum(sizes):8}{sizes[len(sizes) // 2]:8}{sizes[-1]:8}"
        f"{len(lengths):11}{middle:8}{tenth:6}{longest:6}  {where}"
    )


def main() -> None:
    """Print the ledger."""
    print(f"{'':24} files   lines  median longest  functions  median   p90  longest")
    for folder in FOLDERS:
        for suffixes in ((".py",), (".cu", ".cuh")):
            if line := row(ROOT / folder, suffixes):
                print(line)


if __name__ == "__main__":
    main()
