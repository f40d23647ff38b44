"""Values of options: scalars as people write them, sizes, limits."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,99})|0x[0-9a-fA-F]{1,80}")  # no leading zeros: to some, they mean octal
NUMBER = re.compile(r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
LARGEST: dict[Any, float] = {int: 2**31 - 1, float: 3.4028234663852886e38}  # what kernels hold: int32, float32
SHOWN = 10  # items of a list that an error quotes
BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


class Size(NamedTuple):
    """Height and width, in pixels; one number stands for both."""

    height: int
    width: int


@dataclass(frozen=True)
class Rule:
    """What an option accepts beyond its type. The limits hold for each number in it, `choices` for each string.

    A number without `most` may have the magnitude of the LARGEST of its type.
    """

    least: float | None = None
    above: float | None = None
    most: float | None = None
    below: float | None = None
    choices: tuple[str, ...] = ()
    doc: str = ""

    def limits(self) -> str:
        signs = (">=", self.least), (">", self.above), ("<=", self.most), ("<", self.below)
        return " and ".join(f"{sign} {limit}" for sign, limit in signs if limit is not None)

    def admits(self, value: bool | float | str | dict) -> bool:
        if isinstance(value, bool | str | dict):
            return isinstance(value, bool | dict) or not self.choices or value in self.choices
        return (
            (self.least is None or value >= self.least)
            and (self.above is None or value > self.above)
            and (abs(value) <= LARGEST[type(value)] if self.most is None else value <= self.most)
            and (self.below is None or value < self.below)
        )


def as_integer(value: Any) -> int | None:
    """A whole number, also written as 1e4 or as text; None for anything else."""
    if isinstance(value, str) and INTEGER.fullmatch(value):
        return int(value, 16 if value.startswith("0x") else 10)
    if type(value) is int:
        return value
    number = as_number(value)
    return int(number) if number is not None and number.is_integer() else None


def as_number(value: Any) -> float | None:
    """A finite number, also written as text; None for anything else."""
    if isinstance(value, bool) or not (isinstance(value, int | float) or NUMBER.fullmatch(str(value))):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _bool(value: Any) -> bool | None:
    return BOOLS.get(value.lower()) if isinstance(value, str) else value if isinstance(value, bool) else None


def _str(value: Any) -> str | None:
    return value if isinstance(value, str) and "\0" not in value else None  # no path holds U+0000


def _dict(value: Any) -> dict | None:
    return dict(value) if isinstance(value, Mapping) else None


# The value as each type, or None where it is not one.
SCALARS: dict[Any, Callable[[Any], Any]] = {int: as_integer, float: as_number, bool: _bool, str: _str, dict: _dict}


def show(value: Any) -> str:
    """A value as an error quotes it."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "a mapping" if value else "an empty mapping"
    if not isinstance(value, list | tuple):
        return repr(value)
    items = [*map(show, value[:SHOWN]), *["..."] * (len(value) > SHOWN)]
    return f"[{', '.join(items)}]"
