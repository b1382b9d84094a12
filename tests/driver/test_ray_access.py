"""A local Ray can be found by those who know the run it was started for, and by nobody else."""

import os
import stat
from pathlib import Path

import pytest
import ray
from ray._raylet import AuthenticationTokenLoader

from raymega.driver.cluster.ray_access import FILE, Access, access_to
from raymega.driver.cluster.ray_private import apply_auth
from raymega.driver.cluster.ray_session import PREFIX, ray_of
from raymega.errors import ClusterError

DEMO = Path("/runs/demo/LOCK")
ACCESS = Access(address="10.0.0.1:6379", mode="token", token="secret", locks=(str(DEMO),))


def test_a_run_is_found_by_its_lock_among_the_rays_of_this_machine(tmp_path: Path):
    for name in ("gone", "torn", "other", "mine"):
        (tmp_path / name).mkdir()
    (tmp_path / "torn" / FILE).write_text('{"address": "1')
    Access(address="other", mode="token", token="t", locks=("/runs/other/LOCK",)).leave_in(tmp_path / "other")
    ACCESS.leave_in(tmp_path / "mine")
    assert access_to(DEMO, homes=tmp_path.iterdir()) == ACCESS
    assert access_to(Path("/runs/new/LOCK"), homes=tmp_path.iterdir()) is None


def test_only_its_user_may_read_the_token(tmp_path: Path):
    ACCESS.leave_in(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600


def test_who_connects_shows_the_token_of_that_ray(tmp_path: Path, monkeypatch):
    (tmp_path / f"{PREFIX}x7").mkdir()
    ACCESS.leave_in(tmp_path / f"{PREFIX}x7")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("raymega.driver.cluster.ray_session.LONGEST_SOCKET", 4096)
    for variable in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"):
        monkeypatch.setenv(variable, "")
        monkeypatch.delenv(variable)
    connected: list[tuple[str, str]] = []
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda address, **_: connected.append((address, os.environ["RAY_AUTH_TOKEN"])))
    monkeypatch.setattr("raymega.driver.cluster.ray_session.apply_auth", lambda: None)
    with ray_of(DEMO):
        assert connected == [("10.0.0.1:6379", "secret")]


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


def test_a_run_whose_ray_nobody_knows_is_told_where_to_say_so(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(ClusterError, match="Set RAY_ADDRESS"), ray_of(None):
        pass
