import pytest

from raymega.control.outlook import Drain, Outlook
from raymega.control.prices import Prices
from tests.control.examples import PLAN

FIRST = Outlook().with_nodes((), ("n0",), 100.0)


def test_nodes_that_were_there_from_the_first_are_used_at_once():
    assert (FIRST.steady_t("n0", steady_s=10.0), FIRST.changes, FIRST.since) == (0.0, 0, 100.0)


def test_each_time_a_node_goes_again_the_next_one_waits_twice_as_long():
    outlook, waits = FIRST, []
    for turn in range(3):
        outlook = outlook.with_nodes(("n0",), ("n0", "n1"), 200.0 + turn)
        waits.append(outlook.steady_t("n1", steady_s=10.0) - 200.0 - turn)
        outlook = outlook.with_nodes(("n0", "n1"), ("n0",), 200.5 + turn)
    assert waits == [10.0, 20.0, 40.0]


def test_a_drain_is_forgotten_when_its_node_has_gone_and_the_earlier_of_two_counts():
    outlook = FIRST.with_drain(Drain(node="n0", by_t=150.0, cause="x")).with_drain(
        Drain(node="n0", by_t=170.0, cause="y")
    )
    assert [(drain.by_t, drain.cause) for drain in outlook.draining] == [(150.0, "y")]
    assert outlook.with_nodes(("n0",), ("n1",), 160.0).leaving == frozenset()


def test_the_more_changes_the_shorter_the_time_to_the_next():
    restless = FIRST.without(("w1",), 100.0).without(("w2",), 200.0).without(("w3",), 300.0)
    assert (FIRST.mean_s(100.0), restless.mean_s(100.0), restless.mean_s(1300.0)) == (600.0, 150.0, 450.0)


def test_a_node_that_goes_with_its_workers_is_one_change():
    gone = FIRST.without(("w1",), 100.0).without(("w2",), 100.1).with_nodes(("n0", "n1"), ("n0",), 101.0)
    assert gone.changes == FIRST.changes + 1


def test_what_a_start_takes_is_measured_where_it_is_heard_of_at_once():
    outlook = FIRST.with_started(("w4", "w5"), 100.0)
    assert not outlook.is_born("w4")
    assert outlook.with_born(("w4",), 104.0).prices.start_s == 6.0, "half the guess of 8 s, half the 4 s"
    assert outlook.with_born(("w4",)).prices == outlook.prices


def test_few_bytes_tell_nothing_of_the_width_of_the_way():
    prices = Prices()
    assert prices.moved(999, 1.0) == prices
    assert prices.moved(400_000_000, 1.0).bytes_per_s == 7e8
    assert prices.pause_s(200_000_000) == pytest.approx(0.7)


def test_a_step_is_predicted_from_what_one_took():
    measured = Prices().stepped(PLAN, 2.0)
    assert measured.step_s(PLAN) == pytest.approx(2.0)
