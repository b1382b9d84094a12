import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.pipeline.actions import work_of_step
from raymega.pipeline.catalog import schedule
from raymega.pipeline.check import faults
from raymega.pipeline.repair import Repair
from raymega.pipeline.timeline import even_durations, timeline
from raymega.pipeline.trains import timetable
from tests.pipeline.broken_step import Step
from tests.pipeline.pipelines import pipeline, written


def ordered(text: str, *, num_stages: int, limits: dict[str, int], held: dict[str, int] | None = None):
    """The timetable of what each team has to run, written as `team | actions` in any order."""
    team_of = {action: team for team, program in written(text).items() for action in program}
    return timetable(team_of, num_stages=num_stages, limits=limits, held=held or {})


@pytest.mark.parametrize(("pp", "num_microbatches"), [(1, 1), (2, 3), (3, 1), (3, 7), (4, 8), (8, 5)])
def test_a_whole_step_on_straight_routes_is_1f1b(pp: int, num_microbatches: int) -> None:
    programs = pipeline("1f1b", num_stages=pp, num_microbatches=num_microbatches)
    team_of = {action: team for team, program in programs.items() for action in program}
    limits = {f"stage {s}": min(pp - s, num_microbatches) for s in range(pp)}
    assert timetable(team_of, num_stages=pp, limits=limits, held={}).programs == programs


@pytest.mark.parametrize(("pp", "chunks", "num_microbatches"), [(2, 2, 4), (4, 2, 8), (2, 3, 6)])
def test_with_chunks_it_is_little_slower_than_the_schedule_made_for_them(pp: int, chunks: int, num_microbatches: int):
    programs = pipeline("interleaved", num_stages=pp, num_microbatches=num_microbatches, chunks=chunks)
    row, shape = schedule("interleaved"), {"num_stages": pp, "num_microbatches": num_microbatches, "chunks": chunks}
    made = timetable(
        {action: team for team, program in programs.items() for action in program},
        num_stages=pp * chunks,
        limits={f"stage {s}": row.in_flight(stage=s, **shape) for s in range(pp)},
        held={},
    )
    durations = even_durations(num_stages=pp * chunks)
    times = [timeline(p, durations=durations, num_stages=pp * chunks).total_s for p in (made.programs, programs)]
    assert times[0] <= 1.12 * times[1]


def test_what_is_furthest_on_its_way_goes_first() -> None:
    made = ordered("last | 1F0 1B0 1B3", num_stages=2, limits={"last": 1}, held={"last": 1})
    assert made.programs == written("last | 1B3 1F0 1B0")
    assert made.in_flight == {"last": 1}


def test_teams_that_wait_for_each_other_s_room_get_more_where_it_is_needed() -> None:
    # `mid` is full with 0 and 1, which have to pass `last`; it is full with 2, whose pass at `mid` is lost
    made = ordered(
        "mid | 0F2 0B2 0B0 0B1 \n last | 1B2 1F0 1B0 1F1 1B1",
        num_stages=2,
        limits={"mid": 2, "last": 1},
        held={"mid": 2, "last": 1},
    )
    assert made.in_flight == {"mid": 2, "last": 2}
    assert made.programs == written("mid | 0B0 0F2 0B1 0B2 \n last | 1F0 1B0 1F1 1B1 1B2")


@given(dp=st.integers(1, 3), pp=st.integers(1, 4), data=st.data())
@settings(max_examples=40, deadline=None)
def test_any_routes_run_with_unbuffered_sends_within_the_bound_of_1f1b(dp: int, pp: int, data: st.DataObject) -> None:
    routes = data.draw(st.lists(st.tuples(*[st.integers(0, dp - 1)] * pp), min_size=1, max_size=9))
    work = work_of_step(num_stages=pp, num_microbatches=len(routes))
    team_of = {action: f"{routes[action.microbatch][action.stage]}.{action.stage}" for action in work}
    limits = {f"{r}.{s}": pp - s for r in range(dp) for s in range(pp)}
    made = timetable(team_of, num_stages=pp, limits=limits, held={})
    assert made.in_flight == limits
    assert faults(made.programs, num_stages=pp, work=work, in_flight=limits, receives_ahead=1) == ()


@pytest.mark.parametrize(("done", "lost"), [(10, 1), (40, 1), (40, 0), (90, 2)])
def test_what_is_left_of_a_broken_step_takes_little_longer_than_its_busiest_team_works(done: int, lost: int) -> None:
    step = Step(dp=4, pp=3, num_microbatches=64)
    step.advance(random.Random(0), most=done * 4)
    step.kill(f"0.{lost}")
    made = step.repair()
    assert isinstance(made, Repair)
    durations = even_durations(num_stages=3, backward_s=2.0)
    clock = timeline(made.programs, durations=durations, num_stages=3)
    assert clock.total_s <= 1.1 * max(map(clock.busy_s, made.programs)) + 9  # and once through the pipeline
