"""The .cfg files of cuda-convnet and cuda-convnet2: sections of options, each with its place.

    [conv1]
    type=conv
    filters=64      ; names of options in any case

They are what Python 2's ConfigParser reads: comments begin a line with # or ;, or stand behind " ;"; an indented line
continues the one before.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from layers.options import ConfigError
from layers.registry import suggest
from layers.values import LARGEST, as_integer, as_number

T = TypeVar("T")
HEADER = re.compile(r"\[([^\]]+)\]")
OPTION = re.compile(r"([^:=\s][^:=]*?)\s*[:=]\s*(.*)")
FLAGS = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
REQUIRED: Any = object()


@dataclass
class Entry:
    """An option: its name as written, its text, and its place."""

    name: str
    text: str
    place: str


class Section:
    """The options of one layer. What is asked for is known; `finish` complains of the rest."""

    def __init__(self, name: str, place: str):
        self.name, self.place = name, place
        self.entries: dict[str, Entry] = {}  # by name in lower case
        self.asked: dict[str, str] = {}  # names as documented, by name in lower case

    def error(self, message: str, option: str = "") -> ConfigError:
        """About the section, or about an option where that is given."""
        entry = self.entries.get(option.lower())
        text = f"{option}: {message}" if option else message
        return ConfigError(text, ("layers", self.name), position=entry.place if entry else self.place)

    def has(self, option: str) -> bool:
        self.asked[option.lower()] = option
        return option.lower() in self.entries

    def skip(self, *options: str) -> None:
        """Options without a meaning here, such as those for speed."""
        self.asked |= {option.lower(): option for option in options}

    def text(self, option: str, default: Any = REQUIRED) -> str:
        """The value as it is written."""
        return self.entries[option.lower()].text if self.has(option) else self.value(option, str, "text", default)

    def integer(self, option: str, default: Any = REQUIRED) -> int:
        return self.value(option, as_integer, "an integer", default)

    def number(self, option: str, default: Any = REQUIRED) -> float:
        return self.value(option, as_number, "a number", default)

    def flag(self, option: str, default: bool) -> bool:
        return self.value(option, lambda text: FLAGS.get(text.lower()), "true or false", default)

    def value(self, option: str, read: Callable[[str], T | None], expected: str, default: Any) -> T:
        """One value; `read` returns None for a text that is none."""
        if not self.has(option) and default is not REQUIRED:
            return default
        return self.values(option, 1, read, expected)[0]

    def values(
        self, option: str, count: int, read: Callable[[str], T | None], expected: str, default: Any = REQUIRED
    ) -> list[T]:
        """A list with a value for each of `count` inputs; a single one stands for all of them."""
        if not self.has(option):
            if default is REQUIRED:
                raise self.error(f"option '{option}' is missing; expected {expected}")
            return [default] * count
        parts = [part.strip() for part in self.entries[option.lower()].text.split(",")]
        if len(parts) not in (1, count):
            raise self.error(f"expected {count} values, one for each input, found {len(parts)}", option)
        found = [read(part) for part in parts]
        for part, value in zip(parts, found, strict=True):
            if value is None:
                raise self.error(f"expected {expected}, found '{part}'", option)
            numbers: tuple[Any, ...] = getattr(value, "numbers", (value,))
            for most in (LARGEST[type(n)] for n in numbers if type(n) in LARGEST and abs(n) > LARGEST[type(n)]):
                raise self.error(f"expected {expected}, found '{part}'; the largest number is {most:.10g}", option)
        return found * count if len(found) < count else found  # type: ignore[return-value]

    def names(self, option: str) -> list[str]:
        """A list of any length."""
        self.has(option)
        entry = self.entries.get(option.lower())
        if entry is None:
            raise self.error(f"option '{option}' is missing; expected names of layers")
        return [part.strip() for part in entry.text.split(",")]

    def finish(self, kind: str) -> None:
        """Raise ConfigError for an option that nobody asked for."""
        for lower, entry in self.entries.items():
            if lower not in self.asked:
                known = sorted(self.asked.values(), key=str.lower)
                message = f"unknown option '{entry.name}' of a {kind} layer{suggest(entry.name, known)}"
                raise self.error(message).at(entry.place)


def read_cfg(path: Path) -> dict[str, Section]:
    """The sections of a file by name, in order; ConfigError for what is not such a file."""
    sections: dict[str, Section] = {}
    section: Section | None = None
    entry: Entry | None = None
    for number, line in enumerate(path.read_text("utf-8-sig", errors="replace").splitlines(), 1):
        place, text = f"{path}:{number}", re.split(r"\s;", line, maxsplit=1)[0].rstrip()
        if not text.strip() or text.lstrip()[0] in "#;":
            continue
        if text[0].isspace() and entry:
            entry.text += " " + text.strip()
        elif header := HEADER.match(text):
            name = header[1].strip()
            if name in sections:
                found = f"a second section [{name}]; the first is at {sections[name].place}"
                raise ConfigError(found, position=place)
            section, entry = sections.setdefault(name, Section(name, place)), None
        elif (option := OPTION.fullmatch(text.strip())) and section:
            entry = Entry(option[1], option[2], place)
            _add(section, entry)
        else:
            expected = "[section] or option=value" if section else "[section]"
            raise ConfigError(f"expected {expected}, found '{text.strip()}'", position=place)
    return sections


def _add(section: Section, entry: Entry) -> None:
    first = section.entries.setdefault(entry.name.lower(), entry)
    if first is not entry:
        raise section.error(f"given twice; the first is at {first.place}", entry.name).at(entry.place)
