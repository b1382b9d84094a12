import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Kind, work_of_step
from raymega.pipeline.catalog import schedule, schedule_names
from raymega.pipeline.check import check, faults
from tests.pipeline.pipelines import fitting_chunks, pipeline, written

GOOD = """
    stage 0 | 0F0 0F1 0B0 0B1
    stage 1 | 1F0 1B0 1F1 1B1
"""


def faults_of(text: str, *, num_stages: int = 2, num_microbatches: int = 2, receives_ahead: int = 1) -> str:
    work = work_of_step(num_stages=num_stages, num_microbatches=num_microbatches)
    return "; ".join(faults(written(text), num_stages=num_stages, work=work, receives_ahead=receives_ahead))


def test_a_good_pipeline_has_no_fault() -> None:
    assert faults_of(GOOD) == ""


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("1B0 1F1", "1F1", "1B0 is missing"),
        ("0F1", "0F1 0F1", "0F1 stands 2 times in stage 0"),
        ("1F0 1B0", "1B0 1F0", "1B0 stands before 1F0 in stage 1"),
        ("0B1", "0B1 0F2", "0F2 in stage 0 is not part of the step"),
        ("0F0 0F1", "0F1 0F0", "stage 0 sends 0F1 before 0F0, stage 1 takes in 0F0 first"),
        ("0B0 0B1", "0B1 0B0", "stage 1 sends 1B0 before 1B1, stage 0 takes in 1B1 first"),
    ],
)
def test_a_planted_fault_is_named(right: str, wrong: str, message: str) -> None:
    assert right in GOOD
    assert faults_of(GOOD.replace(right, wrong)) == message


def test_work_done_by_two_teams_is_named_with_both() -> None:
    assert "1F1 stands 1 times in stage 1, 1 times in spare" in faults_of(GOOD + "spare | 1F1")


def test_a_backward_stands_where_its_forward_stands() -> None:
    apart = GOOD.replace("1F1 1B1", "1F1") + "other | 1B1"
    assert "1B1 stands in other, its 1F1 in stage 1" in faults_of(apart)


def test_all_faults_are_reported_at_once() -> None:
    both = faults_of(GOOD.replace("1B0 1F1", "1F1").replace("0F0 0F1", "0F1 0F0"))
    assert "1B0 is missing" in both
    assert "stage 0 sends 0F1 before 0F0" in both


def test_a_schedule_that_breaks_its_bound_on_activations_is_named() -> None:
    programs = pipeline("gpipe", num_stages=2, num_microbatches=3)
    with pytest.raises(RaymegaBug, match="stage 0 has 3 activations alive after 0F2, its limit is 2"):
        check(programs, num_stages=2, num_microbatches=3, in_flight={"stage 0": 2, "stage 1": 1000})


def test_a_fault_reaches_the_caller_as_one_error_with_its_facts() -> None:
    with pytest.raises(RaymegaBug, match=r"These programs cannot run\. 1B0 is missing\.") as caught:
        check(written(GOOD.replace("1B0 1F1", "1F1")), num_stages=2, num_microbatches=2)
    assert caught.value.facts["faults"] == ("1B0 is missing",)


def test_without_receives_posted_early_1f1b_stands_still_and_the_circle_is_named() -> None:
    assert faults_of(GOOD, receives_ahead=0) == (
        "deadlock: stage 0 sends 0F1 to stage 1, which is at 1B0 and has not posted it, "
        "and stage 1 sends 1B0 to stage 0, which is at 0F1 and has not posted it"
    )


def test_a_team_that_only_waits_for_the_circle_is_not_named() -> None:
    with_bystander = """
        stage 0 | 0F0 0F1 0B0 0B1
        stage 1 | 1F0 1B0 1F1 1B1
        stage 2 | 2F0 2B0 2F1 2B1
    """
    found = faults_of(with_bystander, num_stages=3, receives_ahead=0)
    assert found.startswith("deadlock: stage 0 sends 0F1 to stage 1")
    assert "stage 2" not in found


def test_two_teams_that_wait_for_what_each_would_make_next_are_a_circle() -> None:
    chunks_the_wrong_way_round = """
        stage 0 | 0F0 2F0 0B0 2B0
        stage 1 | 1F0 3F0 1B0 3B0
    """
    assert faults_of(chunks_the_wrong_way_round, num_stages=4, num_microbatches=1) == (
        "deadlock: stage 0 waits for 1B0 of stage 1, and stage 1 waits for 2B0 of stage 0"
    )


def test_a_team_that_waits_for_its_own_later_action_is_a_circle_of_one() -> None:
    one_team = "both | 1F0 0F0 1B0 0B0"
    assert faults_of(one_team, num_microbatches=1) == "deadlock: both needs its own 0F0 before 1F0"


@pytest.mark.parametrize("receives_ahead", [0, 1, 10])
@pytest.mark.parametrize(("num_stages", "num_microbatches"), [(1, 1), (2, 1), (3, 7), (8, 5)])
def test_gpipe_runs_even_if_receives_are_posted_late(
    num_stages: int, num_microbatches: int, receives_ahead: int
) -> None:
    check(
        pipeline("gpipe", num_stages=num_stages, num_microbatches=num_microbatches),
        num_stages=num_stages,
        num_microbatches=num_microbatches,
        receives_ahead=receives_ahead,
    )


@given(name=st.sampled_from(schedule_names()), num_stages=st.integers(1, 8), num_microbatches=st.integers(1, 20))
@settings(max_examples=60, deadline=None)
def test_every_schedule_runs_with_unbuffered_sends(name: str, num_stages: int, num_microbatches: int) -> None:
    row, chunks = schedule(name), fitting_chunks(name) if name != "gpipe" else 1
    check(
        pipeline(name, num_stages=num_stages, num_microbatches=num_microbatches, chunks=chunks),
        num_stages=num_stages * chunks,
        num_microbatches=num_microbatches,
        kinds=row.kinds,
        in_flight={
            f"stage {s}": row.in_flight(
                stage=s, num_stages=num_stages, num_microbatches=num_microbatches, chunks=chunks
            )
            for s in range(num_stages)
        },
        receives_ahead=row.receives_ahead,
    )


@given(num_stages=st.integers(2, 5), num_microbatches=st.integers(2, 8), data=st.data())
@settings(max_examples=60, deadline=None)
def test_two_actions_of_a_kind_that_change_places_are_noticed_and_their_team_named(
    num_stages: int, num_microbatches: int, data: st.DataObject
) -> None:
    programs = pipeline("1f1b", num_stages=num_stages, num_microbatches=num_microbatches)
    stage = data.draw(st.sampled_from(sorted(programs)))
    program = list(programs[stage])
    at = data.draw(st.integers(0, len(program) - 2))
    program[at], program[at + 1] = program[at + 1], program[at]
    work = work_of_step(num_stages=num_stages, num_microbatches=num_microbatches)
    found = faults({**programs, stage: tuple(program)}, num_stages=num_stages, work=work)
    if program[at].kind is program[at + 1].kind:
        assert stage in "; ".join(found)


def test_forward_only_work_is_checked_as_well() -> None:
    work = work_of_step(num_stages=2, num_microbatches=2, kinds=(Kind.F,))
    programs = written("stage 0 | 0F0 0F1 \n stage 1 | 1F0")
    assert faults(programs, num_stages=2, work=work) == ("1F1 is missing",)


def test_a_repair_takes_what_no_program_makes_from_a_log() -> None:
    missing = written("peer | 1F0 1B0")
    assert faults(missing, num_stages=3, work=missing["peer"]) == ()
