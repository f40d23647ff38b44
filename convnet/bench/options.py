"""The options of `convnet bench`, read from the words of the command line."""

from collections.abc import Sequence

from convnet.errors import UserError
from convnet.parallel.model import Links

FIGURES = {"nodes": "machines", "gpus": "ranks of each", "bandwidth": "GB/s between machines", "within": "GB/s in one"}


def numbers(option: str, text: str) -> list[int]:
    """Whole numbers above 0 between commas; UserError tells the option."""
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UserError(f"{option}: expected numbers such as 1,2, found '{text}'")
    return [int(word) for word in words]


def links(texts: Sequence[str]) -> list[Links]:
    """Worlds such as "nodes=4,gpus=8,bandwidth=50"; a bandwidth of 0 within a machine stands for the measured one."""
    return [_links(text) for text in texts]


def _links(text: str) -> Links:
    given: dict[str, float] = {}
    for word in text.split(","):
        name, _, value = word.partition("=")
        try:
            given[name.strip()] = float(value)
        except ValueError:
            given[name.strip()] = -1.0
    if set(given) - set(FIGURES) or min(given.values()) <= 0 or any(given.get(n, 1) % 1 for n in ("nodes", "gpus")):
        known = ", ".join(f"{name} ({meaning})" for name, meaning in FIGURES.items())
        raise UserError(
            f"--simulate: expected figures above 0, such as nodes=4,gpus=8,bandwidth=50, found '{text}'; {known}"
        )
    nodes, gpus = int(given.get("nodes", 1)), int(given.get("gpus", 1))
    return Links(nodes, gpus, 1e9 * given.get("within", 0), 1e9 * given.get("bandwidth", 50))
