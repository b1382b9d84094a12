from dataclasses import replace

import pytest

from raymega.control.changing import Around, Way, Ways
from raymega.control.ladder import Rung
from raymega.control.outlook import Outlook
from raymega.control.prices import MOST_KINDS, Prices
from raymega.control.proposing import propose
from raymega.control.states import Training
from raymega.plan.finer import finer
from raymega.plan.plan import Plan, straight_routes
from raymega.plan.uneven import uneven_plan, work_of
from tests.control.examples import PLAN, SEATS, STORY
from tests.control.fake_hands import moving_brain


def short_of_a_team() -> Plan:
    """Stage 1 has lost one of its two teams, and most of its layers with it."""
    found = uneven_plan(PLAN, kept=[place for place in PLAN.teams if place != (1, 1)], more=())
    assert found is not None
    return found


UNEVEN = short_of_a_team()


def grown(prices: Prices) -> Plan | None:
    """What a run that is short of a team goes over to, where all could train again after a pause of 100 s."""
    story = replace(STORY, outlook=Outlook(prices=replace(prices, bytes_per_s=1e9)))
    training = Training(story=story, seats=SEATS, plan=UNEVEN, granted=10)
    rows = (Way(rung=Rung.KEEP_REROUTING, plan=UNEVEN), Way(rung=Rung.FULL_RESHARD, plan=PLAN, num_bytes=10**11))
    ways = Ways(seen=Around(own=SEATS, free=(), leaving=(), by_t=None), rows=rows)
    change = propose(moving_brain(steps=10_000), training, ways, 100.0).change
    return None if change is None else change.plan


def test_a_run_short_of_workers_grows_again_to_a_plan_that_was_faster_than_its_work_says() -> None:
    assert work_of(UNEVEN) / work_of(PLAN) == pytest.approx(7 / 6), "by its work it gains too little for the pause"
    assert grown(Prices().stepped(UNEVEN, 2.0)) is None
    assert grown(Prices().stepped(PLAN, 1.0).stepped(UNEVEN, 2.0)) == PLAN


def test_of_a_kind_the_newest_step_counts_and_whoever_its_workers_are() -> None:
    prices = Prices().stepped(PLAN, 1.0).stepped(PLAN.with_workers(("w4", "w5", "w6", "w7")), 3.0)
    assert prices.step_s(PLAN) == pytest.approx(3.0)
    assert len(prices.paces) == 1


def test_a_kind_that_was_never_measured_goes_by_the_newest_step_of_any() -> None:
    prices = Prices().stepped(UNEVEN, 7.0).stepped(PLAN, 3.0)
    never = replace(PLAN, schedule="gpipe")
    assert prices.step_s(never) == pytest.approx(3.0)
    assert prices.step_s(UNEVEN) == pytest.approx(7.0)


def test_smaller_micro_batches_are_no_more_work() -> None:
    small = finer(PLAN, microbatch_size=1)
    assert Prices().stepped(PLAN, 6.0).step_s(small) == pytest.approx(6.0 * work_of(small) / work_of(PLAN) / 2)


def test_few_kinds_are_kept_and_the_oldest_is_forgotten() -> None:
    prices = Prices().stepped(PLAN, 1.0)
    for more in range(1, MOST_KINDS + 1):
        routes = straight_routes(num_microbatches=4 + 2 * more, mesh=PLAN.mesh)
        prices = prices.stepped(newest := replace(PLAN, routes=routes), 9.0)
    assert len(prices.paces) == MOST_KINDS
    assert prices.step_s(PLAN) == pytest.approx(9.0 * work_of(PLAN) / work_of(newest))
