import pytest

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Action, Kind, parse, parse_program
from raymega.pipeline.ledger import Ledger, expected_work, sum_of_work, work_hash

PP, TP, MICROBATCHES = 3, 2, 5


def ledger(program: str) -> Ledger:
    made = Ledger(step=41, generation=1_000_000)
    for action in parse_program(program):
        made.record(action)
    return made


def sums_of(*, stage: int, microbatches: list[int]) -> list[int]:
    program = " ".join(f"{stage}F{m} {stage}B{m}" for m in microbatches)
    return [ledger(program).work(shard=shard) for shard in range(TP)]


def test_work_done_once_adds_up_whoever_did_it() -> None:
    quotas = ([0, 3, 1], [4, 2])
    sums = [x for stage in range(PP) for quota in quotas for x in sums_of(stage=stage, microbatches=quota)]
    assert sum_of_work(sums) == expected_work(num_microbatches=MICROBATCHES, num_stages=PP, tp=TP)


@pytest.mark.parametrize("quotas", [([0, 3, 1], [4]), ([0, 3, 1], [4, 2, 1]), ([0, 3, 1, 1 + 4], [2, 4])])
def test_lost_doubled_and_foreign_work_does_not_add_up(quotas: tuple[list[int], ...]) -> None:
    sums = [x for stage in range(PP) for quota in quotas for x in sums_of(stage=stage, microbatches=quota)]
    assert sum_of_work(sums) != expected_work(num_microbatches=MICROBATCHES, num_stages=PP, tp=TP)


def test_hashes_are_64_bits_and_tell_all_the_work_of_a_large_step_apart() -> None:
    hashes = {work_hash(microbatch=m, stage=v, shard=t) for m in range(40) for v in range(16) for t in range(8)}
    assert len(hashes) == 40 * 16 * 8
    assert max(hashes).bit_length() == 64


def test_the_expected_work_is_the_sum_of_the_hashes_mod_2_64() -> None:
    hashes = [work_hash(microbatch=m, stage=v, shard=t) for m in range(5) for v in range(3) for t in range(2)]
    assert expected_work(num_microbatches=5, num_stages=3, tp=2) == sum(hashes) % 2**64


def test_the_expected_work_is_the_same_on_every_machine() -> None:
    assert expected_work(num_microbatches=1536, num_stages=64, tp=8) == 15570282676166590495


def test_only_backwards_count_as_work() -> None:
    assert ledger("1F0 1F1").work(shard=0) == 0
    assert ledger("1F0 1F1 1B0").work(shard=1) == work_hash(microbatch=0, stage=1, shard=1)


def test_a_ledger_keeps_the_order_and_prints_it() -> None:
    made = ledger("1F0 1F1 1B0")
    assert made.facts[-1] == Action(1, Kind.B, 0)
    assert str(made) == "step 41 | 1F0 1F1 1B0"


def test_finishing_an_action_twice_is_our_bug() -> None:
    with pytest.raises(RaymegaBug, match="1F0 of step 41 is finished twice"):
        ledger("1F0 1F0")


def test_a_backward_without_its_forward_is_our_bug() -> None:
    with pytest.raises(RaymegaBug, match="1B1 of step 41 is finished, but not 1F1"):
        ledger("1F0").record(parse("1B1"))


def test_a_backward_in_parts_counts_once_its_weights_part_is_done() -> None:
    assert ledger("1F0 1I0").work(shard=0) == 0
    assert ledger("1F0 1I0 1W0").work(shard=0) == ledger("1F0 1B0").work(shard=0)


@pytest.mark.parametrize(("program", "needed"), [("1I0", "1F0"), ("1F0 1W0", "1I0")])
def test_no_part_of_a_backward_is_done_before_what_it_needs(program: str, needed: str) -> None:
    with pytest.raises(RaymegaBug, match=f"is finished, but not {needed}"):
        ledger(program)
