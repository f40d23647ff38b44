"""Files that are complete or not there."""

import os

import pytest

from convnet.errors import UserError
from convnet.formats.files import writing


def test_the_file_takes_its_place_in_one_move(tmp_path):
    target = tmp_path / "x"
    target.write_text("old")
    (tmp_path / ".writing-x").write_text("what a killed process has left")
    with writing(target) as partial:
        partial.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new" and os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("fault", [ValueError, KeyboardInterrupt])
def test_after_an_error_nothing_is_left(tmp_path, fault, shared):
    with pytest.raises(fault), writing(tmp_path / "x", shared=shared) as partial:
        partial.write_text("half")
        raise fault
    assert not os.listdir(tmp_path)


def test_several_that_write_at_the_same_time(tmp_path):
    """Each has a file of its own, and the last one stays, whole."""
    with writing(tmp_path / "x", shared=True) as first:
        first.write_text("first")
        with writing(tmp_path / "x", shared=True) as second:
            second.write_text("second, and longer")
        assert (tmp_path / "x").read_text() == "second, and longer"
    assert (tmp_path / "x").read_text() == "first" and os.listdir(tmp_path) == ["x"]


def test_what_has_its_name_is_on_the_disk(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        call = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, call=call: calls.append(name) or call(*args))
    with writing(tmp_path / "x") as partial:
        partial.write_text("")
    assert calls == ["fsync", "replace"]


@pytest.mark.parametrize("name, words", [("", "is a folder"), ("none/x", "there is no folder")])
def test_a_place_that_is_none_is_told_before_the_work(tmp_path, name, words):
    with pytest.raises(UserError, match=words), writing(tmp_path / name):
        pytest.fail("worked")
