import pytest

from raymega.control.arbitration import Decided, Promise, Ruling, Version, Wait, rule
from raymega.control.gathering import gather
from raymega.errors import RaymegaBug

OLD, NEW = 1_000_001, 1_000_002
AT_4, AT_5 = Version(step=4, generation=OLD), Version(step=5, generation=OLD)
TO_4, TO_5 = Decided(version=AT_4, facts=b"4"), Decided(version=AT_5, facts=b"5")
MEMBERS = ("w0", "w1", "w2")


def ruled(*promises: Promise, fenced: tuple[str, ...] = (), heard: Decided | None = None) -> Ruling | Wait:
    return rule(NEW, members=MEMBERS, answers=promises, fenced=fenced, heard=heard)


def promise(worker: str, held: Version | None = AT_4, decided: Decided | None = TO_4, generation: int = NEW) -> Promise:
    return Promise(worker=worker, generation=generation, held=held, decided=decided)


ALL_AT_4 = tuple(promise(worker) for worker in MEMBERS)


def test_a_step_that_nobody_has_decided_is_repaired() -> None:
    ruling = ruled(*ALL_AT_4)
    assert (ruling.version, ruling.apply, ruling.without_state) == (AT_4, (), ())
    assert ruling.reason == "step 5 is repaired: nobody who is left has decided it"


def test_a_decision_of_one_is_applied_by_all() -> None:
    ruling = ruled(ALL_AT_4[0], ALL_AT_4[1], promise("w2", decided=TO_5))
    assert (ruling.version, ruling.decided, ruling.apply) == (AT_5, TO_5, MEMBERS)
    assert ruling.reason.startswith("step 5 is decided, w0, w1, w2 apply it now; step 6 is repaired")


def test_who_has_applied_it_already_does_not_apply_it_again() -> None:
    ruling = ruled(ALL_AT_4[0], promise("w1", held=AT_5, decided=TO_5), promise("w2", held=AT_5, decided=TO_5))
    assert ruling.apply == ("w0",)


def test_a_commit_that_was_heard_of_counts_even_if_its_worker_is_lost() -> None:
    ruling = ruled(*ALL_AT_4[:2], fenced=("w2",), heard=TO_5)
    assert (ruling.decided, ruling.apply) == (TO_5, ("w0", "w1"))


def test_a_decision_that_died_with_its_worker_never_was() -> None:
    ruling = ruled(*ALL_AT_4[:2], promise("w2", decided=TO_5), fenced=("w2",))
    assert (ruling.version, ruling.apply) == (AT_4, ())


@pytest.mark.parametrize("last", [None, promise("w2", generation=OLD)])
def test_there_is_no_ruling_before_all_have_promised(last: Promise | None) -> None:
    found = ruled(*ALL_AT_4[:2], *([last] if last else []))
    assert found == Wait(on=("w2",), reason="w2 has not promised generation 2")


def test_an_answer_to_an_older_question_that_comes_late_replaces_none() -> None:
    assert isinstance(ruled(*ALL_AT_4, promise("w2", generation=OLD)), Ruling)


def test_who_broke_while_applying_has_no_state() -> None:
    ruling = ruled(promise("w0", held=None, decided=TO_5), *[promise(w, held=AT_5, decided=TO_5) for w in ("w1", "w2")])
    assert (ruling.version, ruling.apply, ruling.without_state) == (AT_5, (), ("w0",))


def test_who_is_two_steps_behind_needs_state_from_elsewhere() -> None:
    older = promise("w0", held=Version(step=3, generation=OLD), decided=None)
    assert ruled(older, *[promise(w, held=AT_5, decided=TO_5) for w in ("w1", "w2")]).without_state == ("w0",)


def test_the_decision_is_kept_for_a_stage_whose_only_holder_died_after_others_applied_it() -> None:
    ruling = ruled(*[promise(w, held=AT_5, decided=TO_5) for w in ("w0", "w1")], fenced=("w2",))
    assert (ruling.version, ruling.decided, ruling.apply) == (AT_5, TO_5, ())


def test_two_versions_of_one_step_are_our_bug() -> None:
    other = Version(step=4, generation=OLD - 1)
    with pytest.raises(RaymegaBug, match="Some step has two versions"):
        ruled(*ALL_AT_4[:2], promise("w2", held=other, decided=None))


def test_two_decisions_with_other_bits_are_our_bug() -> None:
    with pytest.raises(RaymegaBug, match="Two decisions lead to"):
        ruled(*ALL_AT_4[:2], promise("w2", decided=Decided(version=AT_4, facts=b"other")))


def test_nobody_left_is_nobody_who_holds_anything() -> None:
    assert ruled(fenced=MEMBERS).version == Version(step=0, generation=0)


@pytest.mark.parametrize(
    ("mirrored", "living", "source"),
    [
        (True, ("w0", "w1"), "w0"),
        (True, ("w1",), "w1"),
        (True, (), None),
        (False, ("w0", "w1"), "w0"),
        (False, ("w1",), None),
    ],
)
def test_a_shard_whose_owner_dies_before_the_gather_comes_from_its_mirror_or_is_replayed(
    mirrored: bool, living: tuple[str, ...], source: str | None
) -> None:
    found = gather({"wq": ("w0", "w1") if mirrored else ("w0",)}, living=living)
    assert found.sources.get("wq") == source
    assert found.replayed == (() if source else ("wq",))
