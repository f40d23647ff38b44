"""Writes docs/layers.md, the reference of all layer types, from their declarations.

    python scripts/layers_reference.py

A test compares the file with what the declarations say now.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import layers
from convnet.config.describe import default_text, document
from layers.initializers import INITIALIZERS
from layers.options import LAYERS, expected, options
from layers.weights import WeightSolver

PAGE = Path(__file__).parent.parent / "docs" / "layers.md"
HEAD = """\
# Layers

Made by `scripts/layers_reference.py` from the declarations that also check a config; `convnet layers TYPE` prints the
same. Shapes are those of one sample or [C, H, W, N], N being the batch. Every layer also has

- `inputs`: the name of a layer, or a list of names; default: the layer before,
- `neuron`: a function that is applied to the output, in a layer of its own; see [neuron](#neuron).

`solver`, of layers that learn, has options of its own: [solver](#solver)."""
SOLVER = """\
# Solver

What `solver` of a layer accepts; what is not given is that of the config's `solver`. Of batch_norm the last three are
missing. Layers with `lr: 0` are frozen."""


def page() -> str:
    """The whole document."""
    LAYERS.discover(layers)
    contents = ", ".join(f"[{kind}](#{kind})" for kind in LAYERS)
    stops = ", ".join(kind for kind in LAYERS if not LAYERS[kind].differentiable)
    passes = f"No gradient passes {stops}: nothing below them can learn. All others pass one."
    parts = [HEAD, passes, contents, *(section(LAYERS[kind]) for kind in LAYERS), "# Initializers"]
    parts += ["What `init` and `init_bias` accept.", *(section(INITIALIZERS[kind]) for kind in INITIALIZERS)]
    parts += [SOLVER, options_table(WeightSolver)]
    return "\n\n".join(parts) + "\n"


def section(cls: Any) -> str:
    """A type: its docstring as written, and a table of its options."""
    return f"## {cls.type}\n\n```text\n{document(cls)}\n```\n\n{options_table(cls)}"


def options_table(cls: Any) -> str:
    """A row for each option."""
    rows = [("option", "value", "default", "meaning")]
    for name, hint, rule, default in options(cls):
        rows.append((f"`{name}`", expected(hint, rule), default_text(default).removeprefix("default "), rule.doc))
    return "\n".join(table_lines(rows)) if len(rows) > 1 else "No options."


def table_lines(rows: Iterable[tuple[str, ...]]) -> Iterable[str]:
    """Rows of a Markdown table, the first being its head."""
    for i, row in enumerate(rows):
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"
        if i == 0:
            yield f"|{'---|' * len(row)}"


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
