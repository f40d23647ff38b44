"""A Config back to YAML, to its fingerprint, and to the differences from another."""

import hashlib
import json
from typing import Any

import yaml

from convnet.config.schema import Config
from convnet.config.text import Resolver
from layers.neuron import Neuron
from layers.options import Options, Path, Size, options, show
from layers.registry import subject


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = Resolver.yaml_implicit_resolvers  # quotes what the loader would not read as text

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Plain scalars lose some line ends that are not ASCII; in double quotes all are escaped."""
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=None if data.isprintable() else '"')


_Dumper.add_representer(str, _Dumper.represent_str)


def dump(config: Config) -> str:
    """YAML text with every option, from which `load_config` makes an equal Config."""
    return yaml_text(plain(config), width=120)


def fingerprint(config: Config) -> str:
    """16 hex digits, equal for configs that compute the same: all options but the name and the folder of the run."""
    return hashlib.sha256(yaml_text(_computed(config)).encode()).hexdigest()[:16]


def leaves(config: Config) -> dict[str, str]:
    """The same options with their values, such as {"solver.lr": "0.1"}."""
    found = _leaves(_computed(config)).items()
    return {subject(path): json.dumps(value, ensure_ascii=False) for path, value in found}


def _computed(config: Config) -> dict[str, Any]:
    return {key: value for key, value in plain(config).items() if key not in ("name", "run")}


def differences(old: Config, new: Config) -> list[str]:
    """One line for each option that differs, such as "solver.lr: 0.1 -> 0.05"."""
    before, after = _leaves(plain(old)), _leaves(plain(new))
    return [
        f"{subject(path)}: {show(before[path]) if path in before else 'absent'} -> "
        f"{show(after[path]) if path in after else 'absent'}"
        for path in {**before, **after}
        if path not in before or path not in after or before[path] != after[path]
    ]


def yaml_text(value: Any, **style: Any) -> str:
    """Plain values as YAML that the loader reads back as they are."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, **style)


def flow_text(value: Any) -> str:
    """The same on one line."""
    return yaml_text(value, default_flow_style=True, width=10_000).removesuffix("...\n").strip()


def plain(value: Any) -> Any:
    """A Config, section or option as mappings, lists and scalars, in the form in which it is written."""
    if isinstance(value, Config):
        return _section(value) | {"layers": _layers(value)}
    if isinstance(value, Options):
        return _section(value)
    if isinstance(value, Size) and value.height == value.width:
        return value.height
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    return value.replace("${", "$${") if isinstance(value, str) else value


def _section(value: Options) -> dict[str, Any]:
    head = {"type": value.type} if value.type else {}
    return head | {name: plain(getattr(value, name)) for name, *_ in options(type(value))}


def _layers(config: Config) -> dict[str, Any]:
    """The section that the specs were built from: a neuron is an option again, and its name that of its layer."""
    owner = {spec.name: spec.path[-1] for spec in config.layers}
    sections: dict[str, Any] = {}
    for spec in config.layers:
        name = owner[spec.name]
        if isinstance(spec.layer, Neuron) and spec.name != name:
            sections[name]["neuron"] = str(spec.layer)
        else:
            inputs = {"inputs": [owner.get(i, i) for i in spec.inputs]} if spec.inputs else {}
            ranks = {"ranks": list(spec.ranks)} if spec.ranks else {}
            sections[name] = _section(spec.layer) | inputs | ranks
    return sections


def _leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {leaf: found for key, item in value.items() for leaf, found in _leaves(item, (*path, key)).items()}
