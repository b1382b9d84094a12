"""The verbs that speak with a run: what they ask, what they say, and what they refuse."""

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from ray.exceptions import RayTaskError

from raymega.config.load import load, to_yaml
from raymega.control.commands import Answer
from raymega.control.events import DrainAsked, ResizeAsked
from raymega.driver.live_run import LiveRun
from raymega.driver.news import Ended
from raymega.driver.records.lock import RunLock
from raymega.errors import ConfigError, StateError
from raymega.mesh import Mesh
from tests.driver.written import events

NODES = [
    {"NodeID": node, "Alive": True, "NodeManagerHostname": host, "NodeManagerAddress": host, "Resources": {}}
    for node, host in (("4c1f", "node-1"), ("9aa0", "node-2"))
]


@dataclass
class Call:
    """A method of a fake actor: `remote` returns what `ray.get` will pass on."""

    answer: Callable[..., object]

    def remote(self, *arguments: object) -> object:
        return self.answer(*arguments)


@dataclass
class FakeController:
    answer: Answer = field(default_factory=lambda: Answer(request=1, accepted=True, reason="so be it"))
    asked: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.ask = Call(lambda wish: self.asked.append(wish) or self.answer)
        self.rewind = Call(lambda step: self.asked.append(step) or self.answer)
        self.stop = Call(lambda *how: self.asked.append(how))
        self.wait = Call(lambda: Ended(exit_code=75, reason="stopped; step 3 is the newest saved"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory `demo` that lies there; nobody writes to it."""
    path = tmp_path / "runs" / "demo"
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(to_yaml(load("run: {name: demo}", source="x")))
    return path


@pytest.fixture
def controller(run, monkeypatch) -> FakeController:
    """The controller of `demo`, which lives."""
    made = FakeController()
    lock = RunLock.acquire(run / "LOCK", controller="raymega:demo")
    monkeypatch.setattr("raymega.driver.finding.ray_of", lambda lock: nullcontext())
    monkeypatch.setattr(LiveRun, "find", lambda name: LiveRun(name=name, actor=made))
    monkeypatch.setattr("ray.get", lambda answer, timeout=None: answer)
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    monkeypatch.setattr("raymega.driver.live_run.tell_ray", lambda wish, rows: "")
    yield made
    lock.release()


def over(run: Path) -> None:
    line = {"event": "RunEnded", "step": 100, "exit_code": 0, "reason": "all 100 steps are committed and saved"}
    (run / "events.jsonl").write_text(events(line))


@pytest.mark.parametrize(
    ("words", "wish"),
    [
        (["--devices", "3"], ResizeAsked(request=0, devices=3)),
        (["--plan", "dp=2,pp=2"], ResizeAsked(request=0, mesh=Mesh(dp=2, pp=2, tp=1))),
    ],
)
def test_a_run_is_asked_for_another_size(raymega, controller, words, wish):
    ended = raymega("resize", "demo", *words)
    assert (ended.code, ended.out, controller.asked) == (0, "demo: so be it\n", [wish])


def test_a_run_is_asked_to_go_back_to_a_checkpoint(raymega, controller):
    ended = raymega("rewind", "demo", "--step", "120")
    assert (ended.code, ended.out, controller.asked) == (0, "demo: so be it\n", [120])


def test_a_checkpoint_that_is_not_kept_is_told_by_the_controller_and_refused(raymega, controller, monkeypatch):
    def refuse(answer, timeout=None):
        raise RayTaskError("rewind", "...", StateError("runs/demo has no checkpoint of step 7; there are: 100, 120"))

    monkeypatch.setattr("ray.get", refuse)
    ended = raymega("rewind", "demo", "--step", "7")
    assert (ended.code, "there are: 100, 120" in ended.err) == (5, True)


def test_a_run_is_asked_to_leave_a_node_in_time(raymega, controller):
    before = time.time()
    assert raymega("drain", "demo", "node-2", "--deadline", "10").code == 0
    (wish,) = controller.asked
    assert isinstance(wish, DrainAsked)
    assert wish.node == "9aa0"
    assert before + 10 <= wish.by_t <= time.time() + 10


def test_what_a_run_refuses_goes_on_as_it_was(raymega, controller):
    controller.answer = Answer(request=1, accepted=False, reason="n1 holds the only copy of stage 1")
    ended = raymega("drain", "demo", "node-1")
    assert ended.code == 4
    assert "run demo goes on as it is: n1 holds the only copy of stage 1" in ended.err


def test_a_stop_waits_for_the_end_and_exits_like_the_run(raymega, controller):
    ended = raymega("stop", "demo", "--grace", "5")
    assert (ended.code, ended.out) == (75, "demo: stopped; step 3 is the newest saved\n")
    assert controller.asked == [("user", 5.0)]


def test_whoever_does_not_wait_for_the_end_is_told_that_it_comes(raymega, controller):
    def interrupted() -> None:
        raise KeyboardInterrupt

    controller.wait = Call(interrupted)
    ended = raymega("stop", "demo")
    assert (ended.code, controller.asked) == (130, [("user", None)])
    assert "run demo stops all the same; see raymega status demo" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["resize", "demo"], 2, "either --devices N or --plan"),
        (["resize", "demo", "--devices", "2", "--plan", "dp=2"], 2, "either --devices N or --plan"),
        (["resize", "demo", "--plan", "dp=2,pq=2"], 2, "'pq=2' names no axis. Axes are dp ("),
        (["resize", "demo", "--plan", "dp=two"], 2, "dp=two found; a number from 1 is wanted"),
        (["resize", "demo", "--plan", f"dp={'9' * 5000}"], 2, "a number from 1 is wanted"),
        (["resize", "demo", "--devices", "9" * 30], 2, "a whole number from 1 is wanted"),
        (["drain", "demo"], 2, "RUN and NODE, or RUN and --self"),
        (["drain", "demo", "node-3"], 2, "node-3 is no node of this cluster. Did you mean node-"),
        (["drain", "dmo", "node-1"], 5, "Did you mean demo?"),
        (["drain", "demo", "node-1", "--deadline", "inf"], 2, "'--deadline'"),
        (["drain", "--self", "--deadline", "nan"], 2, "'--deadline'"),
        (["stop", "demo", "--grace", "1e300"], 2, "'--grace'"),
        (["top", "demo", "--every", "inf"], 2, "'--every'"),
        (["node", "--deadline", "inf", "--", "true"], 2, "'--deadline'"),
        (["chaos", "demo", "--trace", "spot.csv", "--speed", "0"], 2, "'--speed'"),
        (["rewind", "demo"], 2, "Missing option '--step'"),
        (["rewind", "dmo", "--step", "7"], 5, "Did you mean demo?"),
    ],
)
def test_what_cannot_be_meant_is_refused(raymega, controller, words, code, says):
    ended = raymega(*words)
    assert (ended.code, controller.asked) == (code, [])
    assert says in ended.err


def test_a_run_that_is_over_cannot_be_changed_but_is_stopped_already(raymega, run):
    over(run)
    assert raymega("rewind", "demo", "--step", "7").code == 2
    ended = raymega("resize", "demo", "--devices", "2")
    assert ended.code == 2
    assert "run demo does not train: it is over: all 100 steps" in ended.err
    assert f"raymega train {run}/config.yaml --set training.steps=200" in ended.err
    assert raymega("stop", "demo").code == 0


def test_a_run_that_is_only_starting_is_refused_as_that(raymega, run):
    lock = RunLock.acquire(run / "LOCK", controller="client of demo")
    ended = raymega("stop", "demo")
    lock.release()
    assert (ended.code, "run demo is only just starting" in ended.err) == (4, True), ended.err


def test_a_run_known_by_its_cluster_only_is_asked_for_by_name(raymega, monkeypatch):
    def nobody(name: str) -> LiveRun:
        raise ConfigError(f"run {name} is not alive on this cluster. Did you mean demo?")

    monkeypatch.setenv("RAY_ADDRESS", "host:6379")
    monkeypatch.setattr("raymega.driver.finding.ray_of", lambda lock: nullcontext())
    monkeypatch.setattr(LiveRun, "find", nobody)
    ended = raymega("stop", "dmo")
    assert ended.code == 2
    assert "Did you mean demo?" in ended.err
