import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.control.ladder import (
    Barred,
    Offer,
    Rung,
    choose,
    horizon,
    move_s,
    rerouted_step_s,
    shared_step_s,
)
from raymega.errors import StateLost

REROUTE = Offer(rung=Rung.KEEP_REROUTING, step_s=2.0)
SPARE = Offer(rung=Rung.TAKE_SPARE, step_s=1.0, pause_s=1.0, ready_s=10.0, meanwhile_step_s=2.0)
RESHARD = Offer(rung=Rung.FULL_RESHARD, step_s=1.2, pause_s=20.0)
STORAGE = Offer(rung=Rung.STORAGE, step_s=1.2, pause_s=30.0, replay_steps=50)


@pytest.mark.parametrize(
    ("offer", "seconds"),
    [
        (REROUTE, 40.0),
        (SPARE, 5 * 2.0 + 1.0 + 15 * 1.0),
        (RESHARD, 20.0 + 20 * 1.2),
        (STORAGE, 30.0 + 70 * 1.2),
        (Offer(rung=Rung.TAKE_SPARE, step_s=1.0, pause_s=1.0, ready_s=10.0), 10.0 + 1.0 + 20 * 1.0),
        (Offer(rung=Rung.TAKE_SPARE, step_s=1.0, pause_s=1.0, ready_s=900.0, meanwhile_step_s=2.0), 40.0),
    ],
)
def test_a_rung_costs_waiting_pause_replay_and_the_steps_that_are_left(offer: Offer, seconds: float) -> None:
    assert offer.seconds(20) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("horizon_steps", "rung"),
    [(1, Rung.KEEP_REROUTING), (5, Rung.KEEP_REROUTING), (8, Rung.TAKE_SPARE), (1000, Rung.TAKE_SPARE)],
)
def test_the_longer_the_horizon_the_more_a_move_may_cost(horizon_steps: int, rung: Rung) -> None:
    assert choose([RESHARD, STORAGE, SPARE, REROUTE], horizon_steps=horizon_steps).offer.rung is rung


def test_without_a_spare_the_mesh_is_changed_once_it_pays() -> None:
    assert choose([REROUTE, RESHARD], horizon_steps=20).offer is REROUTE
    assert choose([REROUTE, RESHARD], horizon_steps=30).offer is RESHARD


def test_a_gain_within_the_margin_is_not_worth_a_move() -> None:
    little = Offer(rung=Rung.REPLAN_UNEVEN, step_s=1.97)
    assert choose([REROUTE, little], horizon_steps=1000).offer is REROUTE
    assert choose([REROUTE, little], horizon_steps=1000, margin=0.01).offer is little


def test_where_state_is_lost_copies_go_before_storage() -> None:
    copies = Offer(rung=Rung.PEER_COPY, step_s=1.2, pause_s=2.0, replay_steps=1)
    barred = [Barred(rung=rung, reason="stage 1 has no living team") for rung in (Rung.KEEP_REROUTING, Rung.TAKE_SPARE)]
    choice = choose([STORAGE, *barred, copies], horizon_steps=20)
    assert choice.offer is copies
    assert choice.rejected == (
        (Rung.STORAGE, "114.0 s"),
        (Rung.KEEP_REROUTING, "stage 1 has no living team"),
        (Rung.TAKE_SPARE, "stage 1 has no living team"),
    )


def test_the_reason_names_price_pause_and_what_was_left() -> None:
    assert choose([REROUTE, SPARE], horizon_steps=20).reason == (
        "take in a spare: 26.0 s for the next 20 steps; a pause of 1.0 s; instead of 40.0 s (keep rerouting)"
    )


def test_where_no_way_leads_on_every_bar_is_named() -> None:
    with pytest.raises(StateLost, match="storage and replay: there is no checkpoint"):
        choose([Barred(rung=Rung.STORAGE, reason="there is no checkpoint")], horizon_steps=5)


def test_rerouting_is_as_slow_as_the_stage_that_lost_most() -> None:
    assert rerouted_step_s(1.0, replicas=4, living=(4, 3, 2)) == 2.0
    assert shared_step_s(1.0, devices=12, left=9) == pytest.approx(4 / 3)


def test_a_move_takes_as_long_as_its_busiest_worker() -> None:
    assert move_s([100, 300, 200], bytes_per_s=100.0) == 3.0
    assert move_s([], bytes_per_s=100.0) == 0.0


@pytest.mark.parametrize(("mean_s", "left", "steps"), [(600.0, 10_000, 300), (600.0, 7, 7), (0.1, 100, 1), (0.1, 0, 0)])
def test_the_horizon_ends_with_the_next_change_or_the_run(mean_s: float, left: int, steps: int) -> None:
    assert horizon(step_s=2.0, mean_time_between_changes_s=mean_s, steps_left=left) == steps


OFFERS = st.builds(
    Offer,
    rung=st.sampled_from(list(Rung)),
    step_s=st.floats(0.1, 5),
    pause_s=st.floats(0, 60),
    replay_steps=st.integers(0, 50),
    ready_s=st.floats(0, 60),
    meanwhile_step_s=st.none() | st.floats(0.1, 5),
)


@given(offers=st.lists(OFFERS, min_size=1, unique_by=lambda offer: offer.rung), horizon_steps=st.integers(1, 500))
@settings(max_examples=60, deadline=None)
def test_nothing_is_cheaper_than_the_choice_by_more_than_its_margins(offers: list[Offer], horizon_steps: int) -> None:
    choice = choose(offers, horizon_steps=horizon_steps)
    cheapest = min(offer.seconds(horizon_steps) for offer in offers)
    assert cheapest >= 0.98 ** (len(offers) - 1) * choice.predicted_s - 1e-9
    assert choose(offers, horizon_steps=horizon_steps, margin=0.0).predicted_s == cheapest
