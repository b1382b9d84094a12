"""A run whose stages have one holder each loses them, and their nodes; prints what happened as JSON.

    head 1, n1 1, n2 1    dp=1 pp=2, copies after every step in the memory of another node
    head 1, n1 1, n2 1    stage 1's worker kills itself       its state comes from its peer's memory
    head 1, n1 or n2      the node of a worker is killed      the same, on whoever is left

A program of its own, since a process is connected to one Ray at a time.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from raymega.control.changing import MoveUnderway
from raymega.control.ladder import Rung
from raymega.control.loop import Turn
from raymega.control.states import Moving, seats_of
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.live_run import LiveRun
from tests.end_to_end.walk import Followed

STEPS = 70
HEALTH = {
    "health_check_initial_delay_ms": 5000, "health_check_period_ms": 1000, "health_check_timeout_ms": 2000,
    "health_check_failure_threshold": 3,
}  # fmt: skip
KILL = "kill stage=1 replica=0 step=20 phase=reduce"
AHEAD = 12  # steps from an order to its point


def main(path: str) -> None:
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    for _ in range(2):
        cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    os.environ["RAY_ADDRESS"] = cluster.address
    axes, run = {"data_parallel_size": 1, "pipeline_model_parallel_size": 2}, None
    told: dict[str, Any] = {}
    try:
        told["calm"] = Followed(Path(path), name="calm", paced=False, steps=STEPS, **axes).finish().exit_code
        elastic = {"copies_every": 1, "tolerate_nodes": 1, "chaos": [KILL]}
        run = Followed(Path(path), name="lost", paced=True, steps=STEPS, elastic=elastic, **axes)
        told |= lose(run)
    finally:
        print(run.out.getvalue() if run is not None else "it has not begun", file=sys.stderr)
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(told))


def lose(run: Followed) -> dict[str, Any]:
    told: dict[str, Any] = {"killed": until_restored(run)}
    here, turn = ray.get_runtime_context().get_node_id(), run.turns[-1]
    seats = {seat.worker: seat.node for seat in seats_of(turn.decision.state)}
    plan = turn.decision.state.plan
    node = next(seats[worker] for worker in plan.living if seats[worker] != here)
    step = turn.decision.state.story.committed + AHEAD
    LiveRun.find("lost").chaos((f"kill node={node} step={step}",))
    told["node"] = until_restored(run)
    ended = run.finish()
    return told | {"ended": (ended.exit_code, ended.reason)}


def until_restored(run: Followed) -> dict[str, Any]:
    """The next time that state comes from copies, and how that ended."""

    def restores(turn: Turn) -> bool:
        state = turn.decision.state
        move: MoveUnderway | None = state.move if isinstance(state, Moving) else None
        return move is not None and move.change.rung is Rung.PEER_COPY

    turn = run.until(restores)
    again = turn.before.story.committed - turn.decision.state.story.committed
    return {"reason": turn.decision.reason, "again": again, **run.until_resized()}


if __name__ == "__main__":
    main(sys.argv[1])
