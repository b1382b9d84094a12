"""The whole suite: its environment, its threads, and its order - floors from low to high, Ray and slow ones last.

A test is `pure` by where it lies: everything up to `control`, and `sim`, needs neither torch nor ray.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
PURE_ROOMS = ("house", "config", "pipeline", "plan", "layout", "pictures", "control", "sim")
ROOMS = (*PURE_ROOMS, "comm", "model", "train", "data", "checkpoint", "interop", "worker", "driver", "report", "cli")

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# The same examples every time, judged by what they show and not by how fast a busy machine is.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")

_pure_s = pytest.StashKey[list[float]]()


def room(item: pytest.Item) -> str:
    """The folder under tests/ that holds `item`; `house` for files beside this one."""
    parts = item.path.relative_to(TESTS).parts
    return parts[0] if len(parts) > 1 else "house"


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One Ray for all tests of the session that need one: a local one, or that of RAY_ADDRESS."""
    from raymega.driver.ray_session import ray_session  # loads ray, which the pure layer must not

    with ray_session(cpus=6):
        yield


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "pure: needs neither torch nor ray (set by the room it lies in)")
    config.stash[_pure_s] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> tuple[bool, bool, int]:
        late = item.get_closest_marker("slow") is not None, item.get_closest_marker("ray") is not None
        return (*late, ROOMS.index(room(item)) if room(item) in ROOMS else len(ROOMS))

    for item in items:
        if room(item) in PURE_ROOMS:
            item.add_marker("pure")
    items.sort(key=place)


def pytest_collection_finish() -> None:
    torch = sys.modules.get("torch")  # loaded only if a collected test needs it
    if torch is not None:
        torch.set_num_threads(1)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> object:
    if item.get_closest_marker("pure") is not None:
        item.config.stash[_pure_s].append(call.duration)
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    terminalreporter.write_line(f"pure layer: {sum(config.stash[_pure_s]):.1f} s of the 60 s it may take")
