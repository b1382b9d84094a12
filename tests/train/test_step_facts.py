import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.schema import TrainingConfig
from raymega.errors import RaymegaBug
from raymega.train.step_facts import Commit, Expected, Facts, MicrobatchLoss, Skip, decide, merge

FULL = (1 << 64) - 1


def facts(*, losses=(), norm_sq=0.0, work_hash=0, elements=0, contributors=0, step=3, generation=1_000_001):
    return Facts(
        step=step, generation=generation, norm_sq=norm_sq, work_hash=work_hash, elements=elements,
        contributors=contributors,
        losses=tuple(MicrobatchLoss(microbatch=m, loss_sum=loss, tokens=tokens) for m, loss, tokens in losses),
    )  # fmt: skip


EXPECTED = Expected(
    step=3, generation=1_000_001, work_hash=7, elements=100, contributors=5, num_microbatches=2, tokens=10
)


def good(**changes):
    whole = facts(losses=[(0, 2.0, 2), (1, 24.0, 8)], norm_sq=25.0, work_hash=7, elements=100, contributors=5)
    return replace(whole, **changes)


def rule(whole, **training):
    return decide(whole, expected=EXPECTED, training=TrainingConfig(lr=1e-3, **training), samples=64)


def test_the_loss_is_that_of_all_tokens_not_a_mean_of_means():
    assert rule(good()).loss == 2.6


def test_stages_with_norms_3_and_4_are_clipped_by_one_factor_of_norm_5():
    stages = [facts(norm_sq=9.0), facts(norm_sq=16.0, losses=[(0, 2.0, 2), (1, 24.0, 8)])]
    whole = replace(merge(stages), work_hash=7, elements=100, contributors=5)
    ruling = rule(whole, clip_grad=1.0)
    assert ruling.grad_norm == 5.0
    assert ruling.clip == pytest.approx(0.2, rel=1e-6)


@pytest.mark.parametrize(("clip_grad", "clip"), [(0.0, 1.0), (6.0, 1.0), (2.5, 0.5)])
def test_clipping_only_shortens(clip_grad, clip):
    assert rule(good(), clip_grad=clip_grad).clip == pytest.approx(clip, rel=1e-6)


def test_a_commit_carries_the_rate_at_its_samples():
    ruling = rule(good(), lr_schedule="linear", decay_samples=128)
    assert isinstance(ruling, Commit)
    assert ruling.lr == pytest.approx(5e-4)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_loss_that_is_not_finite_skips_and_names_its_microbatch(bad):
    losses = (
        MicrobatchLoss(microbatch=0, loss_sum=2.0, tokens=2),
        MicrobatchLoss(microbatch=1, loss_sum=bad, tokens=8),
    )
    ruling = rule(good(losses=losses))
    assert isinstance(ruling, Skip)
    assert "micro-batches [1] of step 3" in ruling.reason


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_skips(bad):
    ruling = rule(good(norm_sq=bad))
    assert isinstance(ruling, Skip)
    assert "gradient of step 3 is not finite" in ruling.reason


def test_two_infinite_parts_still_merge():
    parts = [facts(norm_sq=math.inf, losses=[(0, math.inf, 1)]), facts(norm_sq=math.nan, losses=[(1, -math.inf, 1)])]
    assert not math.isfinite(merge(parts).norm_sq)
    assert not math.isfinite(merge(parts).loss_sum)


def test_a_step_without_a_trained_token_is_skipped():
    losses = tuple(MicrobatchLoss(microbatch=m, loss_sum=0.0, tokens=0) for m in (0, 1))
    ruling = decide(
        good(losses=losses), expected=replace(EXPECTED, tokens=0), training=TrainingConfig(), samples=64
    )  # fmt: skip
    assert isinstance(ruling, Skip)
    assert "no trained token" in ruling.reason


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"work_hash": 8}, "work hash 8 instead of 7"),
        ({"elements": 99}, "elements 99 instead of 100"),
        ({"contributors": 6}, "contributors 6 instead of 5"),
        ({"generation": 2}, "generation 2 instead of 1000001"),
        ({"step": 4}, "step 4 instead of 3"),
        ({"losses": ()}, "tokens 0 instead of 10"),
    ],
)
def test_work_lost_or_doubled_is_a_bug_and_never_a_commit(changes, message):
    with pytest.raises(RaymegaBug, match=message):
        rule(good(**changes))


def test_facts_of_two_steps_do_not_merge():
    with pytest.raises(RaymegaBug, match="must be of one step"):
        merge([facts(step=3), facts(step=4)])


def test_a_microbatch_has_one_owner_of_its_loss():
    with pytest.raises(RaymegaBug, match="each has one owner"):
        merge([facts(losses=[(0, 1.0, 1)]), facts(losses=[(0, 1.0, 1)])])


parts = st.lists(
    st.tuples(st.floats(0, 1e30), st.integers(0, FULL), st.floats(-1e3, 1e3, width=32), st.integers(0, 100)),
    min_size=1,
    max_size=6,
).map(
    lambda rows: [
        facts(norm_sq=n, work_hash=h, losses=[(m, loss, tokens)], elements=m, contributors=1)
        for m, (n, h, loss, tokens) in enumerate(rows)
    ]
)


@given(parts=parts, data=st.data())
@settings(max_examples=60, deadline=None)
def test_the_order_of_arrival_does_not_occur_in_the_result(parts, data):
    assert merge(data.draw(st.permutations(parts))) == merge(parts)


@given(parts=parts)
@settings(max_examples=30, deadline=None)
def test_facts_survive_the_wire(parts):
    assert Facts.unpack(merge(parts).pack()) == merge(parts)


def test_the_hash_wraps_at_64_bits():
    assert merge([facts(work_hash=FULL), facts(work_hash=2)]).work_hash == 1
