"""Which node is meant, and who may be told that it goes."""

import pytest

from raymega.control.events import DrainAsked
from raymega.driver.cluster.drain import node_named, tell_ray
from raymega.driver.cluster.ray_private import HEAD_RESOURCE, can_drain, can_see_drains
from raymega.errors import ConfigError
from tests.driver.test_small import row

ROWS = [row("4c1fab", host="m1"), row("4c7732", host="m2"), row("9aa001", host="m2"), row("dead01", alive=False)]


@pytest.mark.parametrize(
    ("word", "node"), [("4c7732", "4c7732"), ("9", "9aa001"), ("m1", "4c1fab"), ("10.0.0.9aa001", "9aa001")]
)
def test_a_node_is_named_by_id_or_its_beginning_or_host_or_address(word: str, node: str):
    assert node_named(word, rows=ROWS) == node


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("m2", "m2 names 2 nodes. Name one by its id: "),
        ("4c", "4c names 2 nodes"),
        ("dead01", "is no node of this cluster"),
        ("9ab0", "Did you mean 9aa0?"),
        ("x", "Its nodes are 4c1fab (m1, 10.0.0.4c1fab), "),
    ],
)
def test_a_name_that_is_none_or_means_several_is_refused(word: str, says: str):
    with pytest.raises(ConfigError) as refusal:
        node_named(word, rows=ROWS)
    assert says in str(refusal.value)


def test_ray_is_not_told_to_give_up_the_head_that_all_live_by():
    wish = DrainAsked(request=0, node="1", by_t=1030.0, cause="asked for")
    assert "head" in tell_ray(wish, rows=[row("1", **{HEAD_RESOURCE: 1.0})])
    assert "gone" in tell_ray(wish, rows=ROWS)


def test_this_ray_has_the_calls_that_nobody_promises():
    assert can_see_drains()
    assert can_drain()
