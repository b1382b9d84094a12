import pytest

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import parse_program, show_program
from raymega.pipeline.missing import Missing, TeamReport, missing_work, team_report


def of(done: str, *, stage: int, logged: str | None = None, spoiled: bool = False) -> TeamReport:
    """A report; its log holds what the ledger has, if nothing else is said."""
    log = done if logged is None else logged
    return TeamReport(
        stages=(stage,),
        done=frozenset(parse_program(done)),
        logged=frozenset(parse_program(log)),
        spoiled=spoiled,
    )


def missing(reports: dict[str, TeamReport], *, num_stages: int = 3, num_microbatches: int = 1) -> Missing:
    return missing_work(reports, num_stages=num_stages, num_microbatches=num_microbatches)


def shown(actions) -> str:
    return show_program(tuple(sorted(actions)))


WHOLE = {"a": of("0F0 0B0", stage=0), "b": of("1F0 1B0", stage=1), "c": of("2F0 2B0", stage=2)}


def test_a_step_that_is_all_in_living_ledgers_lacks_nothing() -> None:
    assert missing(WHOLE).actions == frozenset()


@pytest.mark.parametrize(("gone", "lacks"), [("a", "0B0 0F0"), ("b", "1B0 1F0"), ("c", "2B0 2F0")])
def test_the_work_of_one_lost_team_is_missing_and_no_other(gone: str, lacks: str) -> None:
    peer = of("", stage="abc".index(gone))
    assert shown(missing(WHOLE | {gone: peer}).actions) == lacks


def test_an_activation_that_is_held_is_not_made_again() -> None:
    half = WHOLE | {"a": of("0F0", stage=0), "b": of("1F0", stage=1), "c": of("", stage=2)}
    assert shown(missing(half).actions) == "0B0 1B0 2B0 2F0"


def test_two_lost_neighbours_are_made_again_from_the_logs_round_them() -> None:
    assert shown(missing(WHOLE | {"b": of("", stage=1), "c": of("", stage=2)}).actions) == "1B0 1F0 2B0 2F0"


def test_a_forward_whose_gradient_counts_is_run_again_only_to_feed_the_next_stage() -> None:
    lacking = missing(WHOLE | {"b": of("1F0 1B0", stage=1, logged="1B0"), "c": of("", stage=2)})
    assert shown(lacking.actions) == "1F0 2B0 2F0"
    assert shown(lacking.forwards_only) == "1F0"
    assert shown(lacking.kept["b"]) == "1B0 1F0"


def test_forwards_that_nobody_holds_are_missing_back_to_the_first_stage() -> None:
    no_log = {"a": of("0F0 0B0", stage=0, logged=""), "b": of("1F0 1B0", stage=1, logged="1B0")}
    lacking = missing(no_log | {"c": of("", stage=2)})
    assert shown(lacking.actions) == "0F0 1F0 2B0 2F0"
    assert shown(lacking.forwards_only) == "0F0 1F0"


def test_an_open_forward_that_must_be_run_again_leaves_the_ledger() -> None:
    lacking = missing({"a": of("0F0", stage=0, logged=""), "b": of("", stage=1)}, num_stages=2)
    assert shown(lacking.actions) == "0B0 0F0 1B0 1F0"
    assert lacking.forwards_only == frozenset()
    assert lacking.kept["a"] == frozenset()


def test_a_spoiled_team_starts_anew_and_its_log_is_still_good() -> None:
    lacking = missing(WHOLE | {"b": of("1F0 1B0", stage=1, spoiled=True)})
    assert shown(lacking.actions) == "1B0 1F0"
    assert lacking.anew == {"b"}


def test_a_team_whose_counted_gradient_is_held_by_nobody_starts_anew() -> None:
    lacking = missing(WHOLE | {"a": of("", stage=0), "b": of("1F0 1B0", stage=1, logged="1F0")})
    assert lacking.anew == {"b"}
    assert shown(lacking.actions) == "0B0 0F0 1B0 1F0"


def test_the_same_work_in_two_living_ledgers_is_our_bug() -> None:
    with pytest.raises(RaymegaBug, match=r"1[FB]0 stands in the ledgers of b and of other, both alive"):
        missing(WHOLE | {"other": of("1F0 1B0", stage=1)})


def test_a_team_has_what_all_its_shards_have() -> None:
    whole = team_report([of("1F0 1B0", stage=1), of("1F0 1B0", stage=1, logged="1F0")])
    assert whole == of("1F0 1B0", stage=1, logged="1F0")


def test_a_team_whose_shards_finished_different_work_is_spoiled() -> None:
    assert team_report([of("1F0 1B0", stage=1), of("1F0", stage=1)]).spoiled
