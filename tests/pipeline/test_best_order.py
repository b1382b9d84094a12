from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.pipeline.actions import Action, Kind, work_of_step
from raymega.pipeline.best_order import best_order
from raymega.pipeline.by_clock import by_clock
from raymega.pipeline.check import faults
from raymega.pipeline.running_order import Durations
from raymega.pipeline.timeline import finish_s
from raymega.pipeline.trains import timetable
from tests.pipeline.pipelines import written


def seconds(blocks: list[int]) -> Durations:
    return {(s, kind): count * (2.0 if kind is Kind.B else 1.0) for s, count in enumerate(blocks) for kind in Kind}


def arguments(routes: list[tuple[int, ...]], *, blocks: list[int], limits: dict[str, int] | None = None) -> Any:
    pp, work = len(blocks), work_of_step(num_stages=len(blocks), num_microbatches=len(routes))
    teams = sorted({(route[s], s) for route in routes for s in range(pp)})
    return {
        "team_of": {action: f"{routes[action.microbatch][action.stage]}.{action.stage}" for action in work},
        "durations": seconds(blocks), "num_stages": pp, "held": {},
        "limits": limits or {f"{replica}.{s}": pp - s for replica, s in teams},
    }  # fmt: skip


def test_who_has_half_the_blocks_and_twice_the_micro_batches_never_stops() -> None:
    asked = arguments([(m % 2, 0) for m in range(6)], blocks=[2, 1], limits={"0.0": 2, "1.0": 2, "0.1": 2})
    made = best_order(**asked)
    assert made.programs["0.1"] == written("x | 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1F4 1B3 1F5 1B4 1B5")["x"]
    assert finish_s(made.programs, durations=asked["durations"], num_stages=2) == 2 + 6 * 3 + 4
    asked.pop("durations")
    trains = timetable(**asked).programs
    assert finish_s(trains, durations=seconds([2, 1]), num_stages=2) == 30


@given(dp=st.integers(1, 3), blocks=st.lists(st.integers(1, 4), min_size=1, max_size=4), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_routes_and_passes_are_legal_and_never_later_than_trains(
    dp: int, blocks: list[int], data: st.DataObject
) -> None:
    pp = len(blocks)
    routes = data.draw(st.lists(st.tuples(*[st.integers(0, dp - 1)] * pp), min_size=1, max_size=9))
    asked = arguments(routes, blocks=blocks)
    made, durations = best_order(**asked), asked.pop("durations")
    work, limits = asked["team_of"].keys(), asked["limits"]
    assert made.in_flight == limits
    assert faults(made.programs, num_stages=pp, work=work, in_flight=limits, receives_ahead=1) == ()
    ends = [finish_s(some.programs, durations=durations, num_stages=pp) for some in (made, timetable(**asked))]
    assert ends[0] <= ends[1]


@pytest.mark.parametrize("order", [sorted, lambda work: sorted(work, reverse=True)])
def test_the_order_is_the_same_however_the_work_is_given(order: Any) -> None:
    asked = arguments([(m % 3, m % 2) for m in range(12)], blocks=[2, 3])
    team_of, limits = asked["team_of"], asked["limits"]
    turned = asked | {
        "team_of": {a: team_of[a] for a in order(team_of)},
        "limits": {t: limits[t] for t in order(limits)},
    }
    assert best_order(**turned).programs == best_order(**asked).programs


def test_forwards_that_are_only_sent_on_take_no_room() -> None:
    team_of = dict.fromkeys((Action(0, Kind.F, m) for m in range(3)), "0.0")
    asked: Any = {"durations": seconds([1, 1]), "num_stages": 2, "limits": {"0.0": 1}, "held": {"0.0": 1}}
    assert by_clock(team_of, **asked) is None, "nothing makes room"
    found = by_clock(team_of, **asked, forwards_only=frozenset(team_of))
    assert found == {"0.0": tuple(sorted(team_of))}
