"""Whoever asks a run something is connected to the Ray in which it lives, or told which two Rays these are."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray

from raymega.driver.cluster import ray_of_run
from raymega.driver.cluster.connection import Connection
from raymega.driver.cluster.ray_access import Access
from raymega.driver.cluster.ray_of_run import ray_of
from raymega.driver.cluster.ray_session import PREFIX, ray_here
from raymega.driver.finding import reach
from raymega.driver.live_run import LiveRun
from raymega.driver.records.lock import RayAt, RunLock
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ClusterError, ConfigError, RayGone

OURS, OTHER = RayAt(address="10.0.0.1:6379", session="session_1"), RayAt(address="10.0.0.2:6379", session="session_2")


class Rays:
    """Stands in for Ray. `there`: who answers where; `told`: connections made, with the token shown."""

    def __init__(self) -> None:
        self.here: RayAt | None = None
        self.there = {at.address: at for at in (OURS, OTHER)}
        self.told: list[tuple[str, str]] = []

    def init(self, address: str, **_: object) -> None:
        assert self.here is None, "Maybe you called ray.init twice by accident?"
        self.here = self.there[address]
        self.told.append((address, os.environ.get("RAY_AUTH_TOKEN", "")))

    def shutdown(self) -> None:
        self.here = None

    def context(self) -> SimpleNamespace:
        assert self.here is not None
        session = self.here.session
        return SimpleNamespace(gcs_address=self.here.address, get_session_name=lambda: session)

    def why_dead(self, address: str, *, name: str) -> str:
        return "" if address in self.there else f"nobody answers at {name}: refused"


@pytest.fixture
def rays(tmp_path: Path, monkeypatch) -> Rays:
    made = Rays()
    for variable in ("RAY_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_MODE"):
        monkeypatch.setenv(variable, "")  # so that each is put back
        monkeypatch.delenv(variable)
    monkeypatch.setattr(ray, "init", made.init)
    monkeypatch.setattr(ray, "shutdown", made.shutdown)
    monkeypatch.setattr(ray, "is_initialized", lambda: made.here is not None)
    monkeypatch.setattr(ray, "get_runtime_context", made.context)
    monkeypatch.setattr(ray_of_run, "OF_THIS_PROCESS", Connection(here=ray_here))
    monkeypatch.setattr(ray_of_run, "apply_auth", lambda: None)
    monkeypatch.setattr(ray_of_run, "temp_root", lambda: tmp_path)
    monkeypatch.setattr(ray_of_run, "why_dead", made.why_dead)
    monkeypatch.setattr(ray_of_run, "refuse_dead", lambda address: None)
    return made


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[Path]:
    """That of a run `demo` whose controller lives in `OURS`."""
    (tmp_path / "demo").mkdir()
    held = RunLock.acquire(tmp_path / "demo" / "LOCK", controller="raymega:demo", ray=OURS)
    yield tmp_path / "demo" / "LOCK"
    held.release()


@pytest.fixture
def local(tmp_path: Path, lock: Path) -> None:
    """`OURS` is a local Ray of this user."""
    home = tmp_path / f"{PREFIX}x7"
    home.mkdir()
    Access(address=OURS.address, mode="token", token="secret", locks=(str(lock),)).leave_in(home)


@pytest.mark.usefixtures("local")
def test_a_local_run_is_reached_with_its_token_whatever_ray_address_says(rays: Rays, lock: Path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", OTHER.address)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of the other")
    with ray_of(lock), ray_of(lock):
        assert rays.told == [(OURS.address, "secret")]
    assert (rays.here, os.environ["RAY_AUTH_TOKEN"], "RAY_AUTH_MODE" in os.environ) == (None, "of the other", False)


@pytest.mark.usefixtures("local")
def test_a_lock_that_names_no_ray_leads_to_the_local_one_that_was_started_for_it(rays: Rays, lock: Path):
    lock.unlink()
    with ray_of(lock):
        assert rays.here == OURS


def test_a_run_on_a_cluster_is_reached_there_though_ray_address_is_another(rays: Rays, lock: Path, monkeypatch):
    monkeypatch.setenv("RAY_ADDRESS", OTHER.address)
    with ray_of(lock):
        assert rays.here == OURS


def test_who_is_connected_to_another_ray_is_told_both_and_the_ways_out_and_stays_connected(rays: Rays, lock: Path):
    rays.here = OTHER
    both = rf"run demo lives in the Ray at {OURS.address}, .*another, {OTHER.address};"
    with pytest.raises(ClusterError, match=rf"{both}.*ray\.shutdown\(\) first, or .*`raymega stop {lock.parent}`"):
        ray_of(lock).__enter__()
    assert rays.here == OTHER


def test_who_is_connected_to_the_same_ray_by_another_address_stays_so(rays: Rays, lock: Path):
    rays.here = here = RayAt(address="head:6379", session=OURS.session)
    with ray_of(lock):
        assert rays.here == here
    assert rays.here == here


def test_a_ray_that_does_not_say_which_one_it_is_is_known_by_its_address(rays: Rays, lock: Path, monkeypatch):
    for address in (OURS.address, OTHER.address):
        monkeypatch.setattr(ray, "get_runtime_context", lambda at=address: SimpleNamespace(gcs_address=at))
        rays.here = RayAt(address=address)
        refused = pytest.raises(ClusterError, match=OTHER.address)
        with nullcontext() if address == OURS.address else refused, ray_of(lock):
            pass


def test_where_the_address_leads_nowhere_from_here_ray_address_is_tried(rays: Rays, lock: Path, monkeypatch):
    rays.there = {"head:7000": OURS}
    monkeypatch.setenv("RAY_ADDRESS", "head:7000")
    with ray_of(lock):
        assert rays.told == [("head:7000", "")]


def test_a_client_of_ray_goes_by_ray_address_first(rays: Rays, lock: Path, monkeypatch):
    rays.there["ray://head:10001"] = OURS
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with ray_of(lock):
        assert rays.told == [("ray://head:10001", "")]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ({}, f"nobody answers at {OURS.address}: refused"),
        ({OURS.address: OTHER}, f"at {OURS.address} is another Ray"),
        ({OTHER.address: OTHER}, f"refused; at {OTHER.address} is another Ray"),
    ],
)
def test_a_ray_that_is_gone_is_told_and_no_other_is_taken_for_it(rays: Rays, lock: Path, monkeypatch, there, why: str):
    rays.there = there
    if OTHER.address in there:
        monkeypatch.setenv("RAY_ADDRESS", OTHER.address)
    with pytest.raises(RayGone, match=f"run demo lives in the Ray at {OURS.address}, which is not reached: .*{why}"):
        ray_of(lock).__enter__()
    assert rays.here is None


def test_an_interrupt_in_the_midst_of_connecting_leaves_no_connection(rays: Rays, lock: Path, monkeypatch):
    def broken_off(address: str, **given: object) -> None:
        rays.init(address, **given)
        raise KeyboardInterrupt

    monkeypatch.setattr(ray, "init", broken_off)
    with pytest.raises(KeyboardInterrupt):
        ray_of(lock).__enter__()
    assert rays.here is None


def test_an_interrupt_in_the_midst_of_leaving_does_not_keep_the_connection(rays: Rays, lock: Path, monkeypatch):
    interrupts = iter([KeyboardInterrupt])

    def broken_off() -> None:
        for interrupt in interrupts:
            raise interrupt
        rays.shutdown()

    monkeypatch.setattr(ray, "shutdown", broken_off)
    with pytest.raises(KeyboardInterrupt), ray_of(lock):
        pass
    assert rays.here is None


def test_a_run_of_which_only_the_name_is_known_is_asked_where_ray_address_says(rays: Rays, monkeypatch):
    with pytest.raises(ClusterError, match=r"no Ray is known.*Set RAY_ADDRESS"):
        ray_of(None).__enter__()
    monkeypatch.setenv("RAY_ADDRESS", OTHER.address)
    with ray_of(None):
        assert rays.here == OTHER


def test_a_run_that_ends_while_it_is_reached_is_told_as_over(rays: Rays, lock: Path, monkeypatch):
    directory = RunDirectory(path=lock.parent)
    directory.config.write_text("run: {name: demo}\n")

    def ends(name: str) -> None:
        lock.unlink()
        raise ConfigError("run demo is not alive on this cluster")

    monkeypatch.setattr(LiveRun, "find", ends)
    with pytest.raises(ConfigError, match="run demo does not train: its controller is gone"):
        reach("demo", directory).__enter__()
    assert rays.here is None
