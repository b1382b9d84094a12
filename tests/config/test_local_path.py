"""A word that can be no path is refused with its key, before any file is looked at."""

from pathlib import Path

import pytest

from raymega.config.local_path import local_path
from raymega.errors import ConfigError


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("~no-such-user/x", "run.dir: ~no-such-user/x begins with a home directory that is not known here"),
        ("a" * 256, "has a name of 256 bytes"),
        ("\N{GREEK SMALL LETTER ALPHA}" * 128, "has a name of 256 bytes"),
        ("/bbb" * 1024, "in a path of 4,096; a name has at most 255, a path 4,095"),
        ("a\ud83d", "is no text that can name a file"),
    ],
)
def test_what_can_be_no_path_is_refused(place: str, words: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        local_path(place, key="run.dir")
    assert words in str(refusal.value)


def test_the_longest_names_are_taken() -> None:
    assert local_path("/" + "a" * 255, key="run.dir") == Path("/" + "a" * 255)
    assert local_path("/bbb" * 1023 + "/cc", key="run.dir").name == "cc"


def test_a_relative_path_needs_a_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigError, match=r"run\.dir: runs is relative, and the working directory is gone"):
        local_path("runs", key="run.dir")
    assert local_path("/runs", key="run.dir") == Path("/runs")
