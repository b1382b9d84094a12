"""Orders fire where and when they say, once in a run; what they do to a process is really done to it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raymega.comm.group import GroupSpec
from raymega.comm.solo import SoloGroup
from raymega.config.chaos import PHASES, parse
from raymega.mesh import Coord
from raymega.pipeline.actions import parse_program
from raymega.worker.chaos import Chaos, marker_of
from raymega.worker.interface import ChaosAsked, WorkerSettings
from raymega.worker.world import World
from tests.worker.rig import tiny_config, tiny_plan

PROGRAM = parse_program("1F0 1B0 1F1 1B1")


class Acts:
    """Notes what would be done."""

    def __init__(self) -> None:
        self.done: list[tuple] = []

    def kill(self, *, whole_node):
        self.done.append(("kill", whole_node))

    def stop(self, *, whole_node, for_s):
        self.done.append(("stop", whole_node, for_s))

    def cut(self, *, whole_node, for_s):
        self.done.append(("cut", whole_node, for_s))

    def fill(self, folder, *, for_s):
        self.done.append(("fill", folder, for_s))


class Rig:
    """A worker at a place of dp=2 tp=2 pp=2, whose points are passed by hand."""

    def __init__(self, folder: Path, *orders: str, worker: str = "w0") -> None:
        config = tiny_config()
        self.acts, self.asked = Acts(), []
        settings = WorkerSettings(
            worker=worker, config=config, run_dir=str(folder), checkpoint_dir="s3://none", device="cpu",
            node="beef01", node_number=1, chaos=orders,
        )  # fmt: skip
        self.chaos = Chaos(settings=settings, ask=self.asked.append, acts=self.acts)
        self._plan = tiny_plan(config, dp=2, tp=2, pp=2)

    def step(self, step: int, *, place: tuple[int, int, int] = (0, 1, 0)) -> list[str]:
        """Pass all points of a step; where something was done: before which point."""
        solo = SoloGroup(spec=GroupSpec(key="solo", members=("w0",)))
        world = World(generation=3, plan=self._plan, coord=Coord(*place), team=solo, ring=solo, tied=solo, pairs={})
        self.chaos.begin(world=world, step=step)
        found: list[str] = []
        for name, call, value in self._points():
            before = len(self.acts.done) + len(self.asked)
            call(value)
            found += [name] * (len(self.acts.done) + len(self.asked) - before)
        return found

    def _points(self):
        yield "compute", self.chaos.phase, "compute"
        yield from ((str(action), self.chaos.action, action) for action in PROGRAM)
        yield "reduce", self.chaos.phase, "reduce"
        yield from ((f"bucket {number}", self.chaos.bucket, number) for number in range(2))
        yield from ((name, self.chaos.phase, name) for name in PHASES[2:])


@pytest.mark.parametrize(
    ("point", "where"),
    [("", "compute"), ("action=F1", "1F1"), ("action=B0", "1B0"), ("bucket=1", "bucket 1")]
    + [(f"phase={name}", name) for name in PHASES],
)
def test_an_order_fires_at_its_point_of_its_step_only(tmp_path, point, where):
    rig = Rig(tmp_path, f"kill stage=1 replica=0 step=4 {point}")
    assert [rig.step(step) for step in (3, 4, 5)] == [[], [where], []]


@pytest.mark.parametrize(
    ("target", "places"),
    [
        ("stage=1 replica=0", [(0, 1, 0)]),
        ("stage=1 replica=0 tp=1", [(0, 1, 1)]),
        ("node=1", [(0, 0, 0), (0, 1, 1)]),
        ("node=beef", [(1, 1, 0)]),
        ("", [(1, 0, 1)]),
    ],
)
def test_an_order_is_for_the_place_or_the_node_that_it_names(tmp_path, target, places):
    for number, place in enumerate(places):
        assert Rig(tmp_path / str(number), f"kill {target} step=4").step(4, place=place) == ["compute"]


@pytest.mark.parametrize("target", ["stage=0 replica=0", "stage=1 replica=1", "stage=1 replica=0 tp=1", "node=0"])
def test_an_order_for_another_place_or_node_does_not_fire(tmp_path, target):
    assert Rig(tmp_path, f"kill {target} step=4").step(4) == []


def test_an_order_fires_once_in_a_run_whoever_repeats_the_step(tmp_path):
    order = "kill stage=1 replica=0 step=4 action=B0"
    assert Rig(tmp_path, order).step(4) == ["1B0"]
    assert Rig(tmp_path, order, worker="w9").step(4) == []
    assert "w0" in (tmp_path / "chaos" / marker_of(parse(order))).read_text()


def test_orders_may_come_while_it_trains_and_are_taken_once(tmp_path):
    rig = Rig(tmp_path)
    for _ in range(2):
        rig.chaos.add(("stall step=2 for=0.5",))
    assert [rig.step(1), rig.step(2)] == [[], ["compute"]]
    assert rig.acts.done == [("stop", False, 0.5)]


def test_each_verb_does_what_it_says(tmp_path):
    verbs = ("kill node=1", "stall node=1", "cut", "fill-disk")
    rig = Rig(tmp_path, *(f"{verb} step=4" for verb in verbs))
    rig.step(4)
    assert rig.acts.done == [("kill", True), ("stop", True, None), ("cut", False, None), ("fill", tmp_path, 10.0)]


def test_what_others_carry_out_is_asked_of_them(tmp_path):
    rig = Rig(tmp_path, "drain node=1 step=4 for=30", "kill controller step=4 phase=decide")
    assert rig.step(4) == ["compute", "decide"]
    assert [type(said) for said in rig.asked] == [ChaosAsked, ChaosAsked]
    assert [said.order for said in rig.asked] == [
        "drain node=1 step=4 for=30",
        "kill controller step=4 phase=decide",
    ]


def process(call: str) -> subprocess.Popen:
    """A process that does `call` to itself and then says that it is through."""
    code = f"from pathlib import Path; from raymega.worker.chaos_acts import *; {call}; print('through', flush=True)"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)


def test_a_kill_is_the_kernels_own():
    killed = process("kill(whole_node=False)")
    assert killed.communicate(timeout=20) == ("", None)
    assert killed.returncode == -signal.SIGKILL


def test_who_stops_is_woken_after_its_time():
    stopped = process("stop(whole_node=False, for_s=0.2)")
    _, status = os.waitpid(stopped.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    assert stopped.communicate(timeout=20)[0] == "through\n"


def test_a_whole_node_is_nothing_but_the_worker_where_no_raylet_has_started_it():
    killed = process("kill(whole_node=True)")
    assert killed.communicate(timeout=20) == ("", None)
    assert killed.returncode == -signal.SIGKILL  # and this test, its parent, lives
