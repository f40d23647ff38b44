"""Options of `convnet prepare`: which go together, and what is said of those that do not."""

import pytest

from convnet.cli import main, parse
from convnet.data import DataError
from convnet.data.prepare import command

OPTIONS = {
    "--short-side": "32", "--quality": "90", "--keep-original": None, "--restart": "none", "--size": "16",
    "--channels": "1", "--exif-orientation": None, "--no-shuffle": None, "--shard-size": "5",
}  # fmt: skip
OF_JPEGS = {"--short-side", "--quality", "--restart", "--exif-orientation"}
OF_SHARDS = {"--no-shuffle", "--shard-size"}
FIT = {  # what may be given together
    "shards": [OF_JPEGS | OF_SHARDS, {"--keep-original"} | OF_SHARDS],
    "folder": [OF_JPEGS, {"--keep-original"}],
    "raw": [{"--short-side", "--exif-orientation", "--size", "--channels"}],
}


@pytest.mark.parametrize("form", FIT)
@pytest.mark.parametrize("first", OPTIONS)
@pytest.mark.parametrize("second", OPTIONS)
def test_options_that_change_nothing_are_errors(form, first, second, capsys):
    pair = {first, second}
    words = [word for option in sorted(pair) for word in (option, OPTIONS[option]) if word]
    args = parse(["prepare", "folder", "none", "-o", "none", "--format", form, *words])
    if any(pair <= together for together in FIT[form]):
        recipe = command._recipe(args)
        assert (recipe.keep_original, recipe.shuffle) == ("--keep-original" in pair, "--no-shuffle" not in pair)
        assert recipe.quality == (90 if "--quality" in pair else 95)
        assert recipe.shard_size == (5_000_000 if "--shard-size" in pair else 1_000_000_000)
        assert recipe.short_side == (None if "--keep-original" in pair else 32 if "--short-side" in pair else 256)
        return
    with pytest.raises(DataError) as error:
        command._recipe(args)
    assert any(f"{option} goes with --format" in str(error.value) for option in pair) or (
        "does not go with --keep-original" in str(error.value) and "--keep-original" in pair
    )


def test_options_are_looked_at_before_anything_else(tmp_path, capsys):
    command = ["prepare", "imagenet", "--train-tar", "no", "--devkit", "no", "-o", str(tmp_path / "out"), "--size", "9"]
    assert main(command) == 1
    assert capsys.readouterr().err == "error: --size goes with --format raw, found --format shards\n"
    assert not (tmp_path / "out").exists()
