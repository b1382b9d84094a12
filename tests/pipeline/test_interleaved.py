import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.pipeline.actions import Program, parse_program, work_of_step
from raymega.pipeline.check import check, faults
from raymega.pipeline.schedule_interleaved import group_sizes, interleaved_in_flight
from raymega.pipeline.timeline import Timeline, even_durations, timeline
from tests.pipeline.pipelines import pipeline


def run(*, stages: int, chunks: int, microbatches: int) -> Timeline:
    return timeline(
        pipeline("interleaved", num_stages=stages, num_microbatches=microbatches, chunks=chunks),
        durations=even_durations(num_stages=stages * chunks, backward_s=2),
        num_stages=stages * chunks,
    )


def test_four_stages_of_two_chunks_and_eight_micro_batches_take_57_units() -> None:
    made = run(stages=4, chunks=2, microbatches=8)
    assert made.total_s == 57
    assert [made.peak_alive(f"stage {s}") for s in range(4)] == [11, 9, 7, 5]


def test_a_group_passes_through_a_chunk_before_the_next() -> None:
    first = pipeline("interleaved", num_stages=2, num_microbatches=4, chunks=2)["stage 0"]
    assert first == parse_program("0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3")


@pytest.mark.parametrize(
    ("num_microbatches", "num_stages", "sizes"),
    [(8, 4, (4, 4)), (10, 4, (5, 5)), (9, 4, (5, 4)), (7, 4, (7,)), (3, 4, (3,)), (0, 4, (0,)), (5, 1, (1,) * 5)],
)
def test_a_remainder_is_shared_out_over_the_groups(
    num_microbatches: int, num_stages: int, sizes: tuple[int, ...]
) -> None:
    assert group_sizes(num_microbatches=num_microbatches, num_stages=num_stages) == sizes


@given(stages=st.integers(1, 6), chunks=st.integers(1, 4), microbatches=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_any_number_of_micro_batches_is_legal_and_fills_the_memory_it_promises(
    stages: int, chunks: int, microbatches: int
) -> None:
    programs = pipeline("interleaved", num_stages=stages, num_microbatches=microbatches, chunks=chunks)
    limits = {
        f"stage {s}": interleaved_in_flight(stage=s, num_stages=stages, num_microbatches=microbatches, chunks=chunks)
        for s in range(stages)
    }
    check(
        programs,
        num_stages=stages * chunks,
        num_microbatches=microbatches,
        in_flight=limits,
        receives_ahead=None,
    )
    made = run(stages=stages, chunks=chunks, microbatches=microbatches)
    assert {stage: made.peak_alive(stage) for stage in limits} == limits


@given(stages=st.integers(1, 6), chunks=st.integers(2, 4), more=st.integers(0, 14))
@settings(max_examples=60, deadline=None)
def test_the_bubble_is_that_of_1f1b_divided_by_the_chunks_whatever_the_remainder(
    stages: int, chunks: int, more: int
) -> None:
    microbatches = stages + more
    assert run(stages=stages, chunks=chunks, microbatches=microbatches).total_s == 3 * (
        chunks * microbatches + stages - 1
    )


@given(stages=st.integers(2, 6), chunks=st.integers(2, 4), groups=st.integers(1, 3))
@settings(max_examples=30, deadline=None)
def test_whole_groups_run_with_unbuffered_sends_and_two_receives_ahead(stages: int, chunks: int, groups: int) -> None:
    check(
        pipeline("interleaved", num_stages=stages, num_microbatches=groups * stages, chunks=chunks),
        num_stages=stages * chunks,
        num_microbatches=groups * stages,
        receives_ahead=2,
    )


def test_a_circle_over_the_wrap_from_the_last_stage_to_the_first_is_caught() -> None:
    programs: dict[str, Program] = pipeline("interleaved", num_stages=2, num_microbatches=2, chunks=2)
    work = work_of_step(num_stages=4, num_microbatches=2)
    assert faults(programs, num_stages=4, work=work, receives_ahead=0) == (
        "deadlock: stage 0 sends 0F1 to stage 1, which is at 1F0 and has not posted it, "
        "and stage 1 sends 1F0 to stage 0, which is at 0F1 and has not posted it",
    )
