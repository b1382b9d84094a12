"""The room for checkpoints, judged by rows."""

from pathlib import Path

import pytest

from raymega.checkpoint.preflight import Probe, judge, probe
from raymega.checkpoint.store import open_store
from raymega.errors import StateError
from tests.checkpoint.worlds import save


def room(*, free: int | None, used: int = 0) -> Probe:
    return Probe(node="n3", place="/data", free_bytes=free, used_bytes=used)


@pytest.mark.parametrize(
    ("free", "used", "keep", "warns"),
    [(400, 0, 3, False), (399, 0, 3, True), (100, 0, 1, True), (100, 300, 3, False), (None, 0, 9, False)],
)  # fmt: skip
def test_one_being_written_and_keep_must_fit(free: int | None, used: int, keep: int, warns: bool):
    warnings = judge(room(free=free, used=used), checkpoint_bytes=100, keep=keep)
    assert bool(warnings) == warns


def test_the_warning_has_numbers():
    (warning,) = judge(room(free=250), checkpoint_bytes=100, keep=3)
    assert "checkpoint.keep=3 needs 400 more bytes (3 of 100 and one being written); /data on n3 has 250" in warning


def test_no_room_for_one_is_refused():
    with pytest.raises(StateError, match=r"a checkpoint has 1,000 bytes; /data on n3 has 999 bytes free"):
        judge(room(free=999), checkpoint_bytes=1000, keep=1)


def test_the_probe_leaves_nothing_and_counts_checkpoints_only(tmp_path: Path):
    save(tmp_path, step=10)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_bytes(bytes(1000))
    found = probe(open_store(str(tmp_path)))
    assert found.used_bytes == sum(file.stat().st_size for file in (tmp_path / "step-10").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"step-10", "other"}


def test_the_probe_works_on_any_storage(uri: str):
    found = probe(open_store(uri))
    assert found.used_bytes == 0
    assert open_store(uri).list() == ()
