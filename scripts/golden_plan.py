"""Writes the plan of every shipped config as text: `python scripts/golden_plan.py`.

The files in tests/golden show layers, memory, variants and offsets.  A test compares them with what the code plans now,
so that a change which is meant to change nothing is seen to, and one which is not shows its whole effect in review.
"""

from pathlib import Path

from convnet.config import load_config
from convnet.device import Planner
from convnet.summary import summarize

ROOT = Path(__file__).parent.parent
CONFIGS = ROOT / "configs"
GOLDEN = ROOT / "tests" / "golden"
ARCHITECTURE = 90  # sm_90
LAYERS = 100  # of a network whose every step is kept; the layers and the memory of larger ones are


def plan_text(config: Path) -> str:
    """Layers, memory and steps of a config on the architecture that the golden plans are for."""
    loaded = load_config(config)
    return summarize(loaded, Planner(ARCHITECTURE), explained=len(loaded.layers) <= LAYERS) + "\n"


def golden(config: Path) -> Path:
    """Where the plan of a config is kept."""
    return GOLDEN / f"{config.relative_to(CONFIGS).with_suffix('').as_posix().replace('/', '-')}.txt"


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for config in sorted(CONFIGS.rglob("*.yaml")):
        golden(config).write_text(plan_text(config))


if __name__ == "__main__":
    main()
