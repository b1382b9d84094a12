"""What a measurement is asked for."""

import pytest

from workloads.parts import asked_of


def test_nothing_named_is_everything_and_names_keep_their_order():
    assert asked_of((), program="p", parts=("a", "b")) == ["a", "b"]
    assert asked_of(("b", "a"), program="p", parts=("a", "b")) == ["b", "a"]


def test_a_name_that_is_no_part_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        asked_of(("a", "x", "y"), program="p", parts=("a", "b"))
    assert "x, y: no such part. There are: a b" in capsys.readouterr().err
