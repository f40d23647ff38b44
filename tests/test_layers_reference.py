"""docs/layers.md is what the declarations say; `python scripts/layers_reference.py` renews it."""

from scripts.layers_reference import PAGE, page


def test_the_page_is_up_to_date():
    assert PAGE.read_text() == page()
