"""Inputs: files, directories, globs and URIs name files in one order, and what is missing is named."""

from pathlib import Path

import pytest

from raymega.data.inputs import expand, kind_of
from raymega.errors import ConfigError, DataError


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.txt", "a.jsonl", "deep/c.parquet", "deep/er/d.txt.gz", "deep/.hidden.txt", "_skip/e.txt", "x.bin"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def names(tree: Path, *inputs: str) -> list[str]:
    return [Path(file.path).relative_to(tree).as_posix() for file in expand([str(tree / text) for text in inputs])]


def test_a_directory_means_all_it_holds_of_a_known_kind_sorted(tree: Path) -> None:
    assert names(tree, "") == ["a.jsonl", "b.txt", "deep/c.parquet", "deep/er/d.txt.gz"]


def test_a_star_stays_in_its_directory_and_two_cross(tree: Path) -> None:
    assert names(tree, "*.txt") == ["b.txt"]
    assert names(tree, "deep/*/*.gz") == ["deep/er/d.txt.gz"]
    assert names(tree, "**/*.*") == ["a.jsonl", "b.txt", "deep/c.parquet", "deep/er/d.txt.gz"]


def test_inputs_keep_the_order_in_which_they_were_given(tree: Path) -> None:
    assert names(tree, "b.txt", "a.jsonl", "b.txt") == ["b.txt", "a.jsonl", "b.txt"]


def test_a_name_with_a_bracket_that_exists_is_that_file(tree: Path) -> None:
    (tree / "a[1].txt").write_text("x")
    assert names(tree, "a[1].txt") == ["a[1].txt"]


def test_a_file_uri_is_a_file_here(tree: Path) -> None:
    assert [file.path for file in expand([f"file://{tree}/b.txt"])] == [str(tree / "b.txt")]


@pytest.mark.parametrize(
    ("path", "kind"),
    [("a.txt", "txt"), ("a.TXT", "txt"), ("a.md.zst", "txt"), ("a.jsonl.gz", "jsonl"), ("a.pq", "parquet"),
     ("a.parquet.gz", None), ("a.csv", None), ("txt", None)],
)  # fmt: skip
def test_names_tell_the_kind(path: str, kind: str | None) -> None:
    assert kind_of(path) == kind


def test_what_does_not_exist_is_named(tree: Path) -> None:
    with pytest.raises(DataError, match=r"nope\.txt does not exist"):
        expand([str(tree / "nope.txt")])
    with pytest.raises(DataError, match="holds no file of a known kind"):
        expand([str(tree / "*.csv")])


def test_a_single_file_of_unknown_kind_asks_for_a_name(tree: Path) -> None:
    with pytest.raises(ConfigError, match=r"x\.bin is of no known kind. Rename it"):
        expand([str(tree / "x.bin")])


def test_no_input_is_a_fault_of_the_command() -> None:
    with pytest.raises(ConfigError, match="there is no input"):
        expand([])


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(DataError, match="nope://bucket/x"):
        expand(["nope://bucket/x"])


def test_credentials_in_a_uri_never_reach_a_message() -> None:
    with pytest.raises(DataError) as caught:
        expand(["nope://user:secret@bucket/x"])
    assert "secret" not in str(caught.value)
