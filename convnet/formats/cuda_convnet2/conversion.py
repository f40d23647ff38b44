"""The network of ours that a conversion makes, as it grows."""

from dataclasses import dataclass, field
from typing import Any

from convnet.formats.cuda_convnet2.cfg import Section
from convnet.formats.cuda_convnet2.rates import Learned
from layers.registry import suggest
from layers.values import as_integer

Options = dict[str, Any]


@dataclass(frozen=True)
class Check:
    """What a section says of a size that follows from others here."""

    layer: str
    section: Section
    option: str
    value: int

    def against(self, found: int) -> None:
        """Raise ConfigError where the layer here has another size."""
        if found != self.value:
            raise self.section.error(f"the converted layer has {found}, found {self.value}", self.option)


@dataclass
class Conversion:
    """The network so far. `names`: what a layer there is called here."""

    size: int  # of the images, pixels
    layers: dict[str, Options] = field(default_factory=dict)
    sections: dict[str, Section] = field(default_factory=dict)  # of each of our layers, the one that it is made of
    names: dict[str, str] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)  # of a layer with weights, ours for each input
    gpus: dict[str, list[int]] = field(default_factory=dict)
    joined: dict[tuple[str, ...], str] = field(default_factory=dict)  # pass layers by their inputs
    learned: list[Learned] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, section: Section, name: str, kind: str, inputs: list[str], options: Options) -> str:
        """A layer of ours; the name by which others read it."""
        reads = {"inputs": inputs[0] if len(inputs) == 1 else inputs} if inputs else {}
        self.layers[name] = {"type": kind, **reads, **options}
        self.sections[name] = section
        return name

    def finish(self, section: Section, name: str, kind: str, inputs: list[str], options: Options) -> None:
        """The last of the layers that a section becomes, with its neuron."""
        neuron = section.text("neuron", "ident") if not kind.startswith("cost") else "ident"
        more = {"neuron": neuron.replace(" ", "")} if neuron != "ident" else {}
        self.names[section.name] = self.add(section, name, kind, inputs, {**options, **more})

    def input(self, section: Section, name: str) -> str:
        """What a layer of theirs is called here."""
        if name not in self.names:
            near = suggest(name, self.names) if self.names else ""
            raise section.error(f"'{name}' is not a layer above{near}", "inputs")
        return self.names[name]

    def place(self, section: Section, kind: str) -> None:
        """Which GPUs a layer is on: those of its first input, where it does not say."""
        if kind == "data":
            return
        inherited = self.gpus.get(section.names("inputs")[0], [])
        if section.has("gpu"):
            found = [as_integer(text) for text in section.names("gpu")]
            if None in found:
                raise section.error("expected numbers of GPUs", "gpu")
            inherited = [gpu for gpu in found if gpu is not None]
        self.gpus[section.name] = inherited

    def expect_channels(self, section: Section, layer: str, input_: str, channels: int) -> None:
        """What a section says of the input of a layer; of images nothing else tells it."""
        if self.layers.get(input_, {}).get("type") == "data":
            self.layers[input_]["channels"] = channels
        self.checks.append(Check(layer, section, "channels", channels))

    @property
    def devices(self) -> int:
        """How many GPUs the network ran on."""
        return len({gpu for gpus in self.gpus.values() for gpu in gpus})

    @property
    def passes(self) -> int:
        """Into how many the replicas of layers cut a batch for those of the fewest replicas."""
        replicas = [len(gpus) for gpus in self.gpus.values() if gpus]
        return max(replicas) // min(replicas) if replicas else 1
