import textwrap
from itertools import pairwise
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import RaymegaBug
from raymega.pipeline import schedule_1f1b, schedule_gpipe, schedule_interleaved
from raymega.pipeline import timeline as timeline_module
from raymega.pipeline.actions import Kind
from raymega.pipeline.timeline import Timeline, even_durations, timeline
from tests.pipeline.pipelines import pipeline, written


def run(
    name: str, *, stages: int, microbatches: int, chunks: int = 1, backward_s: float = 1.0, message_s: float = 0.0
) -> Timeline:
    return timeline(
        pipeline(name, num_stages=stages, num_microbatches=microbatches, chunks=chunks),
        durations=even_durations(num_stages=stages * chunks, backward_s=backward_s),
        num_stages=stages * chunks,
        message_s=message_s,
    )


@pytest.mark.parametrize(
    ("module", "picture"),
    [
        (schedule_1f1b, run("1f1b", stages=4, microbatches=6)),
        (schedule_gpipe, run("gpipe", stages=3, microbatches=4)),
        (schedule_interleaved, run("interleaved", stages=2, microbatches=4, chunks=2)),
        (timeline_module, run("1f1b", stages=2, microbatches=2, backward_s=2)),
    ],
)
def test_the_picture_in_the_docstring_is_what_the_code_draws(module: ModuleType, picture: Timeline) -> None:
    assert module.__doc__ is not None
    assert "\n\n" + textwrap.indent(picture.draw(), "    ") + "\n\n" in module.__doc__


def test_1f1b_of_four_stages_and_eight_micro_batches_takes_33_units() -> None:
    made = run("1f1b", stages=4, microbatches=8, backward_s=2)
    assert made.total_s == 33
    assert [made.peak_alive(f"stage {s}") for s in range(4)] == [4, 3, 2, 1]


@given(
    name=st.sampled_from(["gpipe", "1f1b", "interleaved"]),
    stages=st.integers(1, 6),
    microbatches=st.integers(1, 12),
    backward_s=st.sampled_from([1.0, 2.0, 0.5]),
)
@settings(max_examples=60, deadline=None)
def test_the_bubble_is_the_published_one(name: str, stages: int, microbatches: int, backward_s: float) -> None:
    """(p - 1) / (m + p - 1), Narayanan et al. 2021 (arXiv 2104.04473), section 2.2, as a share of the whole step."""
    made = run(name, stages=stages, microbatches=microbatches, backward_s=backward_s)
    share = (stages - 1) / (microbatches + stages - 1)
    assert made.bubble_share() == pytest.approx(share)
    assert made.bubble_share("stage 0") == pytest.approx(share)


@given(
    stages=st.integers(1, 6), more=st.integers(0, 9), unit=st.sampled_from([("zb-h1", 1), ("zb-h2", 1), ("zb-v", 2)])
)
@settings(max_examples=40, deadline=None)
def test_zero_bubble_schedules_wait_p_less_1_units_until_all_are_done(
    stages: int, more: int, unit: tuple[str, int]
) -> None:
    """Qi et al. 2024 (arXiv 2401.10241): the pipeline's filling is left, its draining is full of weights' parts."""
    name, chunks = unit
    made = run(name, stages=stages, microbatches=2 * stages + more, chunks=chunks, backward_s=2)
    assert made.total_s == 3 * chunks * (2 * stages + more) + stages - 1


def test_a_message_delays_its_receiver_only() -> None:
    assert run("gpipe", stages=2, microbatches=1, message_s=0.25).total_s == 4.5
    assert run("1f1b", stages=1, microbatches=3, message_s=0.25).total_s == 6


def test_a_slow_stage_sets_the_pace() -> None:
    slow = {**even_durations(num_stages=2), (1, Kind.F): 3.0, (1, Kind.B): 3.0}
    made = timeline(pipeline("1f1b", num_stages=2, num_microbatches=10), durations=slow, num_stages=2)
    assert made.total_s == 1 + 10 * 6 + 1
    assert made.busy_s("stage 0") == 20


def test_spans_keep_the_order_of_the_program_and_do_not_overlap() -> None:
    made = run("1f1b", stages=3, microbatches=5, backward_s=2, message_s=0.125)
    for stage, program in pipeline("1f1b", num_stages=3, num_microbatches=5).items():
        spans = made.spans[stage]
        assert tuple(span.action for span in spans) == program
        assert all(a.end_s <= b.start_s for a, b in pairwise(spans))


def test_a_team_of_several_virtual_stages_is_drawn_with_their_numbers() -> None:
    programs = written("team | 0F0 1F0 1B0 0B0")
    assert timeline(programs, durations=even_durations(num_stages=2), num_stages=2).draw() == ("team | 0F0 1F0 1B0 0B0")


def test_a_coarser_tick_draws_fewer_cells() -> None:
    made = run("gpipe", stages=1, microbatches=2, backward_s=2)
    assert made.draw() == "stage 0 | F0 F1 B0--- B1---"
    assert made.draw(tick_s=0.5) == "stage 0 | F0--- F1--- B0--------- B1---------"


def test_teams_without_work_are_drawn_empty() -> None:
    made = timeline(written("idle |\n busy | 0F0 0B0"), durations=even_durations(num_stages=1), num_stages=1)
    assert made.draw() == "idle |\nbusy | F0 B0"
    assert made.bubble_share("idle") == 1
    assert timeline({"idle": ()}, durations={}, num_stages=1).draw() == "idle |"


def test_programs_that_stand_still_are_not_given_a_time() -> None:
    with pytest.raises(RaymegaBug, match="stand still: stage 0 at 0B0, stage 1 at 1B0"):
        timeline(
            written("stage 0 | 0B0 0F0 \n stage 1 | 1B0 1F0"), durations=even_durations(num_stages=2), num_stages=2
        )
