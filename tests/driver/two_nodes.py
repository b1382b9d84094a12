"""A run of two fake workers on a cluster of two nodes, one of which goes; prints what happened as JSON.

A program of its own, since a process is connected to one Ray at a time.
"""

import json
import sys
import time
from pathlib import Path

import ray
from ray.cluster_utils import Cluster

from raymega.control.events import StepCommitted, WorkerLost
from raymega.control.states import seats_of
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.train import refuse_if_too_small_for
from raymega.errors import PlanError
from tests.driver.rig import Rig, Run

QUICK = {
    "health_check_initial_delay_ms": 0, "health_check_period_ms": 300, "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}  # fmt: skip


def main(path: str) -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "_system_config": QUICK, "include_dashboard": False}
    )
    node = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    told = follow(Rig(Path(path)), lose=lambda: cluster.remove_node(node, allow_graceful=False))
    ray.shutdown()
    cluster.shutdown()
    print(json.dumps(told))


def follow(rig: Rig, *, lose) -> dict[str, object]:
    told: dict[str, object] = {"refused": refusal(rig)}
    with rig.held(after=20):
        run = Run.begin(rig.launch(dp=2, steps=40, every_steps=10, lease_s=1.0))
        turn = run.until_step(20)
        told["nodes"] = len({seat.node for seat in seats_of(turn.decision.state)})
        lost_t = time.time()
        lose()
        lost = run.until(lambda turn: isinstance(turn.event, WorkerLost))
    told |= {"lost": lost.event.worker, "noticed_s": lost.t - lost_t}
    told |= {"exit_code": run.end().exit_code, "steps": [turn.event.step for turn in run.of(StepCommitted)][-1]}
    told["left"] = rig.living_workers()
    return told


def refusal(rig: Rig) -> str:
    try:
        refuse_if_too_small_for(ray.nodes(), rig.launch(dp=3).config)
    except PlanError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(sys.argv[1])
