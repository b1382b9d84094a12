"""Who gives way to whom: shares of a cluster by priority, the same whoever works them out."""

from hypothesis import given
from hypothesis import strategies as st

from raymega.control.sharing import Claim, allotted, taken_by


def claim(run: str, priority: int, *, wanted: int, held: int, least: int = 1) -> Claim:
    seats = (("n0", held),) if held else ()
    return Claim(run=run, priority=priority, wanted=wanted, least=least, seats=seats)


def shares(*claims: Claim, devices: int) -> dict[str, int]:
    return {run: share.devices for run, share in allotted(claims, devices=devices).items()}


def test_a_run_that_is_alone_has_what_it_wants():
    assert shares(claim("a", 0, wanted=4, held=0), devices=12) == {"a": 4}


def test_a_run_that_goes_first_takes_from_one_that_does_not_down_to_its_least():
    low = claim("low", 0, wanted=12, held=12, least=2)
    assert shares(low, claim("high", 5, wanted=8, held=0), devices=12) == {"low": 4, "high": 8}
    assert shares(low, claim("high", 5, wanted=12, held=0), devices=12) == {"low": 2, "high": 10}


def test_what_is_not_wanted_any_more_is_the_others():
    day, night = (claim("high", 5, wanted=wanted, held=8) for wanted in (8, 2))
    low = claim("low", 0, wanted=12, held=4)
    assert shares(low, day, devices=12)["low"] == 4
    assert shares(low, night, devices=12) == {"low": 10, "high": 2}


def test_nobody_takes_from_a_run_of_the_same_priority():
    first, late = claim("z", 0, wanted=4, held=4), claim("a", 0, wanted=4, held=0)
    assert shares(first, late, devices=5) == {"z": 4, "a": 1}
    assert shares(first, late, devices=4) == {"z": 4, "a": 0}


def test_of_those_who_wait_each_has_its_least_before_one_has_all():
    waiting = [claim(run, 0, wanted=4, held=0) for run in "ab"]
    assert shares(*waiting, devices=5) == {"a": 4, "b": 1}


def test_the_reason_names_who_has_the_rest():
    found = allotted((claim("low", 0, wanted=12, held=12), claim("high", 5, wanted=8, held=0)), devices=12)
    assert found["low"].reason == "4 of 12 devices; beside it high (priority 5) 8"
    assert found["high"].reason == "8 of 12 devices, all that it wants"


def test_the_devices_of_others_are_told_by_node():
    both = (
        claim("a", 0, wanted=4, held=3),
        Claim(run="b", priority=0, wanted=2, least=1, seats=(("n0", 1), ("n1", 1))),
    )
    assert taken_by(both) == {"n0": 4, "n1": 1}


CLAIMS = st.lists(
    st.builds(
        Claim, run=st.sampled_from("abcdef"), priority=st.integers(-2, 2), wanted=st.integers(1, 9),
        least=st.integers(1, 3), seats=st.integers(1, 5).map(lambda held: (("n0", held),)),
    ),
    min_size=1, max_size=5, unique_by=lambda one: one.run,
)  # fmt: skip


@given(claims=CLAIMS, devices=st.integers(0, 24))
def test_shares_are_within_the_cluster_and_within_the_wishes_and_waste_nothing(claims: list[Claim], devices: int):
    found = shares(*claims, devices=devices)
    assert sum(found.values()) == min(devices, sum(one.wanted for one in claims))
    assert all(0 <= found[one.run] <= one.wanted for one in claims)
    assert found == shares(*reversed(claims), devices=devices)


@given(claims=CLAIMS, devices=st.integers(0, 24))
def test_they_stay_once_everyone_has_what_it_was_given(claims: list[Claim], devices: int):
    found = shares(*claims, devices=devices)
    settled = [
        Claim(run=one.run, priority=one.priority, wanted=one.wanted, least=one.least, seats=(("n0", found[one.run]),))
        for one in claims
    ]
    assert shares(*settled, devices=devices) == found
