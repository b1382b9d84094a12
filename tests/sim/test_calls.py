"""What a change of the cluster costs, in calls: it is counted, so that no other load of the machine shows."""

import sys
from dataclasses import replace
from types import FrameType

from raymega.plan.cluster import Cluster, Node
from raymega.sim.simulate import simulate
from tests.sim.scenarios import config, rows, scenario

EACH = 4  # devices of a node
MOST_CALLS = 220  # for each worker, of a node that goes and one that comes: 161; 710 where each worker is told of alone


def calls(nodes: int, *, losses: int) -> int:
    """Of a run in which one node after the other goes and comes back."""
    changes = [row for at in range(losses) for row in ((300.0 + 400 * at, nodes - 1), (450.0 + 400 * at, nodes))]
    asked = config(dp=nodes * EACH // 2, pp=2, training__batch_size=64 * nodes, checkpoint__every_steps=0)
    there = Cluster(nodes=tuple(Node(id=f"n{index}", devices=EACH) for index in range(nodes)))
    run = scenario(asked, trace=rows((0.0, nodes), *changes, end_s=300.0 + 400 * losses), cluster=there)
    count = 0

    def counted(frame: FrameType, event: str, arg: object) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        done = simulate(replace(run, most_passes=0))
    finally:
        sys.setprofile(before)
    assert (done.seen.repairs, done.ended) == (losses, "")
    return count


def test_a_change_costs_few_calls_for_each_worker_and_the_next_one_no_more() -> None:
    first, third = ([calls(nodes, losses=many) for nodes in (16, 32)] for many in (1, 3))
    for_each = [(more - one) / 2 for one, more in zip(first, third, strict=True)]
    assert for_each[1] - for_each[0] < MOST_CALLS * 16 * EACH
    assert for_each[0] < 1.2 * first[0], "no change costs more than those before"
