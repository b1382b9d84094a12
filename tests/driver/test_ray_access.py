"""A local Ray can be found by those who know the run it was started for, and by nobody else."""

import json
import stat
from dataclasses import asdict
from pathlib import Path

import pytest
from ray._raylet import AuthenticationTokenLoader

from raymega.driver.cluster.ray_access import FILE, Access, access_at, access_to
from raymega.driver.cluster.ray_private import apply_auth

DEMO = Path("/runs/demo/LOCK")
ACCESS = Access(address="10.0.0.1:6379", mode="token", token="secret", locks=(str(DEMO),))


def test_a_run_is_found_by_its_lock_among_the_rays_of_this_machine(tmp_path: Path):
    for name in ("gone", "other", "mine"):
        (tmp_path / name).mkdir()
    Access(address="other", mode="token", token="t", locks=("/runs/other/LOCK",)).leave_in(tmp_path / "other")
    ACCESS.leave_in(tmp_path / "mine")
    assert access_to(DEMO, homes=tmp_path.iterdir()) == access_at(ACCESS.address, homes=tmp_path.iterdir()) == ACCESS
    assert access_to(Path("/runs/new/LOCK"), homes=tmp_path.iterdir()) is None


@pytest.mark.parametrize(
    "text",
    [b"", b'{"address": "1', b"[]", b"3", b"null", b"\xff\xfe", b'{"address": "a"}', b'{"locks": 1}', b"[" * 9999],
)
def test_a_file_that_says_nothing_hides_no_other(tmp_path: Path, text: bytes):
    for name in ("damaged", "newer"):
        (tmp_path / name).mkdir()
    (tmp_path / "damaged" / FILE).write_bytes(text)
    (tmp_path / "newer" / FILE).write_text(json.dumps({**asdict(ACCESS), "of a newer version": 1}))
    assert access_to(DEMO, homes=(tmp_path / "damaged", tmp_path / "newer")) == ACCESS


def test_only_its_user_may_read_the_token(tmp_path: Path):
    ACCESS.leave_in(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_a_process_shows_each_ray_its_own_token(monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    shown = []
    for token in ("a" * 64, "b" * 64, "a" * 64):
        monkeypatch.setenv("RAY_AUTH_TOKEN", token)
        Access(address="there", mode="token", token=token, locks=()).take()
        apply_auth()
        shown.append(AuthenticationTokenLoader.instance().get_raw_token())
    assert shown == ["a" * 64, "b" * 64, "a" * 64]
    monkeypatch.undo()
    apply_auth()
