import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.pipeline.actions import Kind, show_program
from raymega.pipeline.catalog import schedule, schedule_names
from tests.pipeline.pipelines import fitting_chunks, pipeline


def program(name: str, *, stage: int, num_stages: int, microbatches: tuple[int, ...]) -> str:
    return show_program(schedule(name).program(stage=stage, num_stages=num_stages, microbatches=microbatches))


@pytest.mark.parametrize(
    ("name", "stage", "expected"),
    [
        ("gpipe", 0, "0F0 0F1 0F2 0F3 0B0 0B1 0B2 0B3"),
        ("1f1b", 0, "0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3"),
        ("1f1b", 1, "1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3"),
        ("1f1b", 2, "2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"),
    ],
)
def test_programs_of_three_stages(name: str, stage: int, expected: str) -> None:
    assert program(name, stage=stage, num_stages=3, microbatches=(0, 1, 2, 3)) == expected


def test_fewer_micro_batches_than_warm_up_steps_are_all_warm_up() -> None:
    assert program("1f1b", stage=0, num_stages=4, microbatches=(5, 9)) == "0F5 0F9 0B5 0B9"


@pytest.mark.parametrize("name", schedule_names())
def test_a_stage_without_micro_batches_has_nothing_to_run(name: str) -> None:
    made = schedule(name).program(stage=0, num_stages=2, microbatches=(), chunks=fitting_chunks(name))
    assert made == ()


@given(data=st.data(), num_stages=st.integers(1, 8), num_microbatches=st.integers(0, 20))
def test_1f1b_keeps_at_most_num_stages_minus_stage_alive(
    data: st.DataObject, num_stages: int, num_microbatches: int
) -> None:
    stage = data.draw(st.integers(0, num_stages - 1))
    made = schedule("1f1b").program(stage=stage, num_stages=num_stages, microbatches=tuple(range(num_microbatches)))
    alive = [sum(1 if a.kind is Kind.F else -1 for a in made[: i + 1]) for i in range(len(made))]
    assert max(alive, default=0) == min(num_stages - stage, num_microbatches)


@given(num_stages=st.integers(1, 6), num_microbatches=st.integers(1, 12))
def test_all_schedules_add_up_the_gradients_of_a_chunk_in_the_same_order(
    num_stages: int, num_microbatches: int
) -> None:
    orders = {
        tuple(a.microbatch for a in made if a.stage == stage and a.kind in (Kind.B, Kind.W))
        for name in schedule_names()
        for stage, made in enumerate(
            pipeline(
                name, num_stages=num_stages, num_microbatches=num_microbatches, chunks=fitting_chunks(name)
            ).values()
        )
    }
    assert len(orders) == 1


def test_gpipe_passes_through_all_chunks_and_back() -> None:
    made = schedule("gpipe").program(stage=1, num_stages=2, microbatches=(0, 1), chunks=2)
    assert show_program(made) == "1F0 1F1 3F0 3F1 3B0 3B1 1B0 1B1"


def test_1f1b_refuses_chunks_and_says_which_schedule_has_them() -> None:
    with pytest.raises(ConfigError, match=r"1f1b runs one chunk a stage, not 2\. Set schedule to interleaved"):
        schedule("1f1b").program(stage=0, num_stages=2, microbatches=(0,), chunks=2)


def test_an_unknown_schedule_is_refused_and_the_known_ones_named() -> None:
    with pytest.raises(
        ConfigError, match=r"no schedule '1f1bb'\. Known are gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v\."
    ):
        schedule("1f1bb")
