"""Named types, and the one error of configuration."""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T", bound=type)
Path = tuple[str | int, ...]


class ConfigError(ValueError):
    """A mistake in a configuration: `[position: ][subject: ]message`.

    path: the keys that lead to what the error is about, such as ("layers", "conv1", "size"); it names the subject.
    key: a key below `path` at which the mistake stands (an unknown option), for the position alone.
    position: "file:line:column", filled in by convnet.config; inside a layer only what is wrong is known.
    """

    def __init__(self, message: str, path: Path = (), key: str | int | None = None, position: str = ""):
        super().__init__(message, path, key, position)
        self.message, self.path, self.key, self.position = message, tuple(path), key, position

    def under(self, *keys: str | int) -> "ConfigError":
        """The same error seen from a section that holds this one under `keys`."""
        return ConfigError(self.message, (*keys, *self.path), self.key, self.position)

    def at(self, position: str) -> "ConfigError":
        return ConfigError(self.message, self.path, self.key, position)

    def __str__(self) -> str:
        return ": ".join(part for part in (self.position, subject(self.path), self.message) if part)


def subject(path: Path) -> str:
    """What a path is called in a message.

    >>> subject(("layers", "conv1", "init", "std")), subject(("data", "mean", 1))
    ("layer 'conv1': init.std", 'data.mean[1]')
    """
    if len(path) >= 2 and path[0] == "layers":
        rest = subject(path[2:])
        return f"layer '{path[1]}'" + (f": {rest}" if rest else "")
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def nearest(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'x'?", or nothing where no name is close."""
    lower = {n.lower(): n for n in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    return f"; did you mean '{lower[near[0]]}'?" if near else ""


def suggest(name: str, names: Iterable[str]) -> str:
    """What to append to "unknown x 'name'": the nearest spelling, and all that could have been meant."""
    names = list(names)
    near = nearest(name, names)
    return f"{near} ({', '.join(names)})" if near else f"; expected {one_of(names)}"


def one_of(names: Iterable[str]) -> str:
    """ "one of a, b", or the only name."""
    names = list(names)
    return f"one of {', '.join(names)}" if len(names) > 1 else "".join(names)


class Registry:
    """Types by name: `@registry.register("name")` on a frozen dataclass, `registry["name"]` to look it up.

    default: the name that a section without `type` means; empty where `type` must be given.
    """

    def __init__(self, noun: str, default: str = ""):
        self.noun, self.default = noun, default
        self._types: dict[str, Any] = {}

    def register(self, name: str) -> Callable[[T], T]:
        def add(cls: T) -> T:
            if name in self._types:
                raise ValueError(f"{self.noun} '{name}' is declared twice")
            if "__dataclass_fields__" not in vars(cls):
                raise TypeError(f"{self.noun} '{name}': {cls.__name__} must be a dataclass (decorate it first)")
            cls.type = name  # type: ignore[attr-defined]
            self._types[name] = cls
            return cls

        return add

    def __getitem__(self, name: str) -> Any:
        if name not in self._types:
            raise ConfigError(f"unknown {self.noun} type '{name}'{suggest(name, self)}")
        return self._types[name]

    def __contains__(self, name: object) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._types))

    def discover(self, package: Any) -> "Registry":
        """Import every module of `package`, so that all types declared in it are known."""
        for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
        return self
