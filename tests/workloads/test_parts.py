"""What a measurement is asked for, and that the texts ask only for what there is."""

import re

import pytest

from tests.house.rooms import ROOT
from workloads.chaos.__main__ import PARTS
from workloads.formats.runs import VARIANTS
from workloads.parts import asked_of

TEXT = "\n".join(file.read_text() for file in [*ROOT.glob("docs/*.md"), *ROOT.glob("workloads/*/README.md")])


def test_nothing_named_is_everything_and_names_keep_their_order():
    assert asked_of((), program="p", parts=("a", "b")) == ["a", "b"]
    assert asked_of(("b", "a"), program="p", parts=("a", "b")) == ["b", "a"]


def test_a_name_that_is_no_part_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit, match="2"):
        asked_of(("a", "x", "y"), program="p", parts=("a", "b"))
    assert "x, y: no such part. There are: a b" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "parts"), [(r"CHAOS=\"?([a-z ]+)", PARTS), (r"workloads\.formats((?: [a-z0-9-]+)+)", VARIANTS)]
)
def test_a_part_that_the_texts_ask_for_is_there(asked: str, parts):
    words = [word for found in re.findall(asked, TEXT) for word in found.split()]
    assert words
    assert set(words) <= set(parts)


def test_every_part_of_chaos_is_explained():
    told = re.findall(
        r"^- \*\*([a-z]+)\*\*", (ROOT / "workloads" / "chaos" / "README.md").read_text(), flags=re.MULTILINE
    )
    assert sorted(told) == sorted(PARTS)
