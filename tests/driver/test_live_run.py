"""What is asked of a live run in Python: only what its controller can write down and read again, and once."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayActorError

from raymega.control.brain import brain_of
from raymega.control.codec import event_from_json, event_to_json
from raymega.control.commands import Answer
from raymega.control.policy import Rules
from raymega.control.transitions import decide
from raymega.driver.arguments import rate, seconds, whole
from raymega.driver.live_run import LiveRun
from raymega.driver.news import Ended
from raymega.errors import ClusterError, ConfigError, RayGone
from raymega.notebook.reaching import mesh_asked
from tests.control.examples import IN
from tests.driver.test_accounting import CONFIG

SO_BE_IT = Answer(request=1, accepted=True, reason="so be it")
LIVE = [state for name, state in IN.items() if name not in ("finished", "failed")]
BRAIN = brain_of(CONFIG, rules=Rules.of(CONFIG, validates=False))
ENDED = Ended(exit_code=0, reason="stopped")
NUMBERS = st.one_of(
    st.integers(-3, 2**70), st.floats(), st.booleans(), st.fractions(), st.integers(-3, 99).map(np.int64),
    st.integers(0, 99).map(np.uint8), st.floats(width=32).map(np.float32), st.floats().map(np.float64),
)  # fmt: skip
OTHERS = st.one_of(st.none(), st.text(max_size=3), st.just(np.arange(3)), st.just([3]), st.just(10**400))
VERBS: dict[str, Callable[[LiveRun, object], object]] = {
    "step": lambda run, given: run.step(given),
    "pause": lambda run, given: run.pause(after_step=given),
    "set": lambda run, given: run.set(lr=given),
    "devices": lambda run, given: run.resize(devices=given),
    "mesh": lambda run, given: run.resize(mesh=mesh_asked(dp=given, tp=None, pp=None)),
    "drain": lambda run, given: run.drain("n1", deadline_s=given, cause="a test"),
    "rewind": lambda run, given: run.rewind(given),
    "stop": lambda run, given: run.stop(grace_s=given),
    "chaos": lambda run, given: run.chaos((given,)),
    "without": lambda run, given: run.chaos((), without={0: given}),
}


class Controller:
    """Keeps what reaches it. `gone`: calls on which it is being replaced."""

    def __init__(self, *, gone: int = 0) -> None:
        self.reached: list[object] = []
        self.gone = gone
        for name in ("ask", "rewind", "chaos", "stop", "wait", "is_ending"):
            setattr(self, name, SimpleNamespace(remote=lambda *given, name=name: self._call(name, given)))

    def _call(self, name: str, given: tuple[object, ...]) -> object:
        if self.gone:
            self.gone -= 1
            raise ActorUnavailableError("it is restarting", None)
        self.reached.extend(given)
        return {"wait": ENDED, "chaos": None}.get(name, SO_BE_IT)


@pytest.fixture(autouse=True)
def by_hand(monkeypatch):
    """A call is answered as it is made."""
    monkeypatch.setattr("ray.get", lambda answer, timeout=None: answer)
    monkeypatch.setattr("ray.nodes", list)
    monkeypatch.setattr("raymega.driver.live_run.tell_ray", lambda wish, rows: "")
    monkeypatch.setattr("raymega.driver.live_run.AGAIN_S", 0.0)
    monkeypatch.setattr("raymega.driver.live_run.why_gone", lambda: "")
    monkeypatch.setattr(LiveRun, "_is_known", lambda self: True)


@pytest.fixture(params=VERBS)
def verb(request) -> Callable[[LiveRun, object], object]:
    return VERBS[request.param]


def test_a_controller_is_only_asked_what_it_can_answer_write_down_and_read_again(verb):
    @settings(max_examples=40)
    @given(st.one_of(NUMBERS, OTHERS))
    def holds(value: object) -> None:
        controller = Controller()
        try:
            verb(LiveRun(name="demo", actor=controller), value)
        except ConfigError:
            assert controller.reached == []
            return
        assert json.loads(json.dumps(controller.reached, default=lambda wish: event_to_json(wish), allow_nan=False))
        for wish in controller.reached:
            if hasattr(wish, "request"):
                assert event_from_json(json.loads(json.dumps(event_to_json(wish)))) == wish
                for state in LIVE:
                    decide(BRAIN, state, wish, 100.0)

    holds()


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, math.inf, "3", None, 10**400, np.bool_(True)])
def test_what_is_no_number_of_steps_is_refused_with_what_is_wanted(value):
    with pytest.raises(ConfigError, match=r"steps=.* found; a whole number from 1 is wanted"):
        whole(value, name="steps")


@pytest.mark.parametrize("value", [3, 3.0, np.int64(3), np.uint8(3), np.float32(3.0), Fraction(3)])
def test_numbers_of_other_libraries_are_numbers(value):
    for made in (whole(value, name="steps"), seconds(value, name="deadline_s"), rate(value, name="lr")):
        assert (made, type(made) in (int, float)) == (3, True)


def test_whoever_takes_the_place_of_a_controller_is_asked_the_same_but_no_steps_twice():
    controller = Controller(gone=2)
    run = LiveRun(name="demo", actor=controller)
    assert run.pause() == SO_BE_IT
    controller.gone = 1
    assert run.stop() == ENDED
    controller.gone = 1
    with pytest.raises(ClusterError, match="controller of run demo is gone, and with it the answer"):
        run.step(5)


def test_a_rewind_that_is_refused_for_the_moment_is_asked_again(monkeypatch):
    monkeypatch.setattr("raymega.driver.live_run.SOON_S", 0.0)
    answers = [replace(SO_BE_IT, accepted=False, soon=True)] * 2 + [SO_BE_IT]
    monkeypatch.setattr(Controller, "_call", lambda self, name, given: answers.pop(0))
    assert (LiveRun(name="demo", actor=Controller()).rewind(5), answers) == (SO_BE_IT, [])
    monkeypatch.setattr("raymega.driver.live_run.SOON_LIMIT_S", 0.0)
    answers = [replace(SO_BE_IT, accepted=False, soon=True)] * 9
    assert LiveRun(name="demo", actor=Controller()).rewind(5).soon


def test_a_controller_that_is_gone_for_good_is_told_and_a_stop_needs_it_no_more(monkeypatch):
    def gone(answer, timeout=None):
        raise RayActorError

    monkeypatch.setattr(LiveRun, "_is_known", lambda self: False)
    monkeypatch.setattr("ray.get", gone)
    run = LiveRun(name="demo", actor=Controller())
    assert run.stop() is None
    with pytest.raises(ClusterError, match="is gone"):
        run.pause()


@pytest.mark.parametrize(("error", "ending"), [(RayActorError, True), (GetTimeoutError, False)])
def test_a_controller_that_is_gone_ends_its_run_and_one_that_is_silent_may_not(monkeypatch, error, ending: bool):
    def fails(answer, timeout=None):
        raise error

    monkeypatch.setattr("ray.get", fails)
    assert LiveRun(name="demo", actor=Controller()).is_ending() is ending


def test_whoever_waits_in_a_ray_that_ends_meanwhile_hears_of_it_and_a_stop_needs_it_no_more(monkeypatch):
    def late(answer, timeout):
        raise GetTimeoutError

    whys = iter(["", "", *["nobody answers at head:6379"] * 2, "nobody answers at head:6379"])
    monkeypatch.setattr("ray.get", late)
    monkeypatch.setattr("raymega.driver.live_run.why_gone", lambda: next(whys))
    run = LiveRun(name="demo", actor=Controller())
    assert run.stop() is None
    with pytest.raises(RayGone, match="has ended, and with it the answer: nobody answers at head:6379"):
        run.pause()
    assert run.is_ending()


def test_one_that_does_not_answer_is_told_with_where_to_look(monkeypatch):
    def late(answer, timeout=None):
        raise GetTimeoutError

    monkeypatch.setattr("ray.get", late)
    for ask in (LiveRun.resume, lambda run: run.rewind(3), lambda run: run.chaos(("kill step=3",))):
        with pytest.raises(ClusterError, match=r"has not answered for 60 s\. See `raymega status demo`"):
            ask(LiveRun(name="demo", actor=Controller()))


def test_orders_are_wanted_for_chaos():
    with pytest.raises(ConfigError, match=r"\(\) are no orders"):
        LiveRun(name="demo", actor=Controller()).chaos(())
