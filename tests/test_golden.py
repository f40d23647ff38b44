"""The plan of every shipped config is the one on file; `python scripts/golden_plan.py` renews them."""

import pytest

from scripts.golden_plan import CONFIGS, GOLDEN, golden, plan_text

FILES = sorted(CONFIGS.rglob("*.yaml"))


@pytest.mark.parametrize("config", FILES, ids=lambda path: path.relative_to(CONFIGS).as_posix())
def test_plan(config):
    assert plan_text(config) == golden(config).read_text()


def test_no_plan_is_left_of_a_config_that_is_gone():
    assert {path.name for path in GOLDEN.iterdir()} == {golden(config).name for config in FILES}
