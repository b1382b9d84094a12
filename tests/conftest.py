"""The whole suite: its environment, its threads, and its order - the pure layer first, then floors from low to high.

A test is `pure` by where it lies: everything up to `control`, and `sim`, needs neither torch nor ray. Where tests run
side by side (pytest-xdist), whole runs go on beside threads, which use one core each, and none beside another:

    worker 0 | config plan control | ray, slow: whole runs of many processes, one after the other ... |
    worker 1 | house pipeline sim  | comm  model  checkpoint  worker  cli ........................... | alone
"""

import fcntl
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

TESTS = Path(__file__).parent
PURE_ROOMS = ("house", "config", "pipeline", "plan", "layout", "pictures", "control", "sim")
ROOMS = (*PURE_ROOMS, "comm", "model", "train", "data", "checkpoint", "interop", "worker", "driver", "report", "cli")

os.environ.setdefault("RAY_AUTH_MODE", "disabled")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
os.environ.setdefault("RAY_raylet_start_wait_time_s", "60")  # Ray's own 30 s may be too few beside other tests
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# The same examples every time, judged by what they show and not by how fast a busy machine is.
settings.register_profile("suite", deadline=None, derandomize=True, database=None)
settings.load_profile("suite")


def room(item: pytest.Item) -> str:
    """The folder under tests/ that holds `item`; `house` for files beside this one."""
    parts = item.path.relative_to(TESTS).parts
    return parts[0] if len(parts) > 1 else "house"


@pytest.fixture(scope="session")
def local_ray() -> Iterator[None]:
    """One Ray for all tests of the session that need one: a local one, or that of RAY_ADDRESS."""
    from raymega.driver.cluster.ray_session import ray_session  # loads ray, which the pure layer must not

    with ray_session(cpus=6):
        yield


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "pure: needs neither torch nor ray (set by the room it lies in)")


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> tuple[bool, bool, bool, bool, int]:
        floor = ROOMS.index(room(item)) if room(item) in ROOMS else len(ROOMS)
        return (
            is_marked(item, "alone"),
            not is_marked(item, "pure"),
            not is_whole_run(item),
            is_marked(item, "slow"),
            floor,
        )

    for item in items:
        if room(item) in PURE_ROOMS:
            item.add_marker("pure")
        if is_marked(item, "alone"):
            item.add_marker(pytest.mark.xdist_group("alone"))
        elif is_whole_run(item):
            item.add_marker(pytest.mark.xdist_group("runs"))
    _skip_without_gpu(items)
    items.sort(key=place)


def is_marked(item: pytest.Item, *names: str) -> bool:
    return any(item.get_closest_marker(name) is not None for name in names)


def is_whole_run(item: pytest.Item) -> bool:
    """Does it start many processes, and may not run beside another that does?"""
    return is_marked(item, "ray", "slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> object:
    """Nothing runs beside a test that is marked `alone`."""
    if (run := os.environ.get("PYTEST_XDIST_TESTRUNUID")) is None:
        return (yield)
    with open(Path(tempfile.gettempdir()) / f"tests-{run}", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX if is_marked(item, "alone") else fcntl.LOCK_SH)
        return (yield)


def pytest_make_parametrize_id(val: object) -> str | None:
    """A long value is named by its beginning: a test's name is one line."""
    return f"{val[:40]}...".encode("unicode_escape").decode() if isinstance(val, str) and len(val) > 100 else None


def _skip_without_gpu(items: list[pytest.Item]) -> None:
    """Tests of GPUs are skipped, and counted, where there is none."""
    gpu = [item for item in items if is_marked(item, "gpu")]
    if gpu and not import_module("torch").cuda.is_available():
        for item in gpu:
            item.add_marker(pytest.mark.skip(reason="gpu: no CUDA device here"))


def pytest_collection_finish() -> None:
    torch = sys.modules.get("torch")  # loaded only if a collected test needs it
    if torch is not None:
        torch.set_num_threads(1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for kind in terminalreporter.stats.values() for report in kind if "pure" in keywords_of(report)]
    if reports:
        seconds = sum(report.duration for report in reports)
        terminalreporter.write_line(f"pure layer: {seconds:.1f} s of tests; make pure, two at a time, may take 60 s")
    skipped = terminalreporter.stats.get("skipped", ())
    if untested := [report for report in skipped if "gpu: no CUDA" in str(report.longrepr)]:
        terminalreporter.write_line(f"{len(untested)} tests of GPUs were skipped: no CUDA device here")


def keywords_of(report: object) -> Mapping[str, object]:
    """The marks of what a report is about; none for one that is not about a test."""
    return report.keywords if isinstance(report, pytest.TestReport) else {}
