"""What a worker asks of its controller when the point of an order comes, and who is told of orders."""

import time

import pytest

from raymega.config.proposal import with_values
from raymega.config.schema import Config
from raymega.control.events import DrainAsked
from raymega.driver.hands.chaos import ChaosHands, check_orders
from raymega.errors import ConfigError
from raymega.worker.interface import ChaosAsked


def test_a_drain_on_purpose_is_a_notice_about_the_workers_node():
    told: list[DrainAsked] = []
    before = time.time()
    ChaosHands(told.append).take(ChaosAsked(generation=1, order="drain stage=0 replica=1 step=3 for=7"), node="n4")
    (asked,) = told
    assert (asked.request, asked.node) == (None, "n4")
    assert 7.0 <= asked.by_t - before < 60.0
    assert "drain stage=0 replica=1 step=3" in asked.cause


def test_nodes_have_numbers_in_the_order_of_their_use():
    hands = ChaosHands([].append)
    assert [hands.number_of(node) for node in ("a", "b", "a", "c")] == [0, 1, 0, 2]


def test_workers_to_come_are_told_each_order_once():
    hands = ChaosHands([].append)
    hands.add(("kill step=4",))
    hands.add(("kill step=4", "stall step=5"))
    assert hands.orders == ("kill step=4", "stall step=5")


def test_a_live_run_refuses_what_it_cannot_carry_out():
    config = with_values(Config(), {"parallelism.data_parallel_size": 2})
    check_orders(("kill stage=0 replica=1 step=4",), config=config)
    with pytest.raises(ConfigError, match=r"replica=2 is not there.*kil is no verb"):
        check_orders(("kill stage=0 replica=2 step=4", "kil step=4"), config=config)
