"""A client that must be gone hands its run over; any other stays until the end, or until its Ray has ended."""

import signal
from itertools import accumulate
from types import SimpleNamespace

import pytest

from raymega.driver.client import SAME_S, RunHandle, Wishes, follow, signals
from raymega.driver.cluster.ray_private import ended_daemons
from raymega.driver.news import Ended, News
from raymega.errors import ClusterError

OVER = Ended(exit_code=75, reason="stopped and saved")


class FakeRun:
    """A run that ends after so many looks at its news."""

    def __init__(self, *, looks: int) -> None:
        self.looks, self.heard = looks, list[object]()

    def stop(self, wish: object) -> None:
        self.heard.append(wish)

    def hand_over(self) -> None:
        self.heard.append("handed over")

    def news(self, *, wait_s: float) -> News:
        self.waited_s = wait_s
        self.looks -= 1
        return News(turns=(), ended=OVER if self.looks <= 0 else None, t=0.0)


def followed(run: FakeRun, *, leaves_after_s: float | None) -> Ended | None:
    wishes = Wishes()
    wishes.add(("terminate", None))
    return follow(run, wishes=wishes, saw=lambda news: None, leaves_after_s=leaves_after_s)


@pytest.mark.parametrize(
    ("leaves_after_s", "ended", "heard"),
    [
        (None, OVER, [("terminate", None)]),
        (60.0, OVER, [("terminate", None), "handed over"]),
        (0.0, None, [("terminate", None), "handed over"]),
    ],
)
def test_a_sigterm_stops_the_run_and_hands_it_over_where_time_is_short(leaves_after_s, ended, heard):
    run = FakeRun(looks=3)
    assert followed(run, leaves_after_s=leaves_after_s) == ended
    assert run.heard == heard


def test_a_client_that_must_be_gone_does_not_wait_longer_for_news():
    run = FakeRun(looks=3)
    followed(run, leaves_after_s=0.3)
    assert 0.0 < run.waited_s <= 0.3


@pytest.mark.parametrize(("apart_s", "wanted"), [(0.0, 1), (0.9 * SAME_S, 1), (1.1 * SAME_S, 2)])
def test_a_signal_that_is_sent_to_a_process_and_to_its_group_is_no_second_ctrl_c(apart_s, wanted, monkeypatch):
    clock = accumulate([100.0, apart_s])
    monkeypatch.setattr("raymega.driver.client.time.monotonic", lambda: next(clock))
    wishes = Wishes()
    wishes.add(("interrupt", None))
    wishes.add(("interrupt", None))
    assert wishes.take() == [("interrupt", None)] * wanted


@pytest.mark.parametrize(("before", "asked"), [(signal.SIG_DFL, [("hangup", 20.0)]), (signal.SIG_IGN, [])])
def test_a_run_whose_terminal_is_gone_is_saved_unless_it_is_not_to_hear_of_it(before, asked):
    ours = signal.signal(signal.SIGHUP, before)
    with signals(term_grace_s=20.0) as wishes:
        signal.raise_signal(signal.SIGHUP)
    assert (wishes.take(), signal.signal(signal.SIGHUP, ours)) == (asked, before)


@pytest.mark.parametrize(
    ("node", "ended"),
    [
        (None, ()),  # no Ray
        (SimpleNamespace(dead_processes=lambda: []), ()),
        (SimpleNamespace(dead_processes=lambda: [("log_monitor", None), ("raylet", None)]), ("raylet",)),
        (SimpleNamespace(), ()),  # a Ray that does not tell
    ],
)
def test_daemons_of_ones_own_ray_that_have_ended_are_known(node, ended, monkeypatch):
    monkeypatch.setattr("ray._private.worker._global_node", node)
    assert ended_daemons() == ended


def test_a_run_whose_local_ray_has_ended_says_so_and_asks_nobody_any_more(monkeypatch):
    monkeypatch.setattr("raymega.driver.client.ended_daemons", lambda: ("raylet",))
    run = RunHandle(SimpleNamespace(name="demo"), None)
    with pytest.raises(ClusterError, match=r"local Ray of run demo has ended: its raylet is gone.*newest checkpoint"):
        run.news()
    run.close()
