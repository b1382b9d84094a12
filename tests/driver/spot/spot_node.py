"""A cluster of two nodes, one of them spot, whose cloud takes it back; prints what happened as JSON.

A program of its own, since a process is connected to one Ray at a time.
"""

import json
import os
import sys
import time

import ray
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raymega.driver.cluster.ray_private import drain_node, draining_nodes
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.spot.agents import SpotAgents
from raymega.driver.spot.choosing import AZURE_VARIABLE
from raymega.plan.cluster import MARKET_LABEL
from tests.driver.spot.loopback import Cloud, serving
from tests.driver.spot.test_clouds import EVENT
from tests.waiting import eventually

WARNING_S = 30.0  # of a preemption by Azure


@ray.remote(num_cpus=1)
class Work:
    """Something that uses the node."""

    def begun(self) -> int:
        return os.getpid()


def main() -> None:
    with serving("azure") as cloud:
        os.environ[AZURE_VARIABLE] = cloud.base  # nodes take it from this process
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        spot = cluster.add_node(num_cpus=1, labels={MARKET_LABEL: "spot"})
        other = cluster.add_node(num_cpus=1, labels={MARKET_LABEL: "spot"})
        ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        agents = SpotAgents("auto")
        try:
            told = follow(agents, cloud, node=spot.node_id, other=other.node_id)
        finally:
            agents.close()
            ray.shutdown()
            cluster.shutdown()
    print(json.dumps(told))


def follow(agents: SpotAgents, cloud: Cloud, *, node: str, other: str) -> dict[str, object]:
    work = Work.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote()
    ray.get(work.begun.remote())
    agents.follow(ray.nodes())
    eventually(lambda: sum(path.startswith("/metadata/scheduled") for _, path in cloud.asked) >= 2)
    address = ray.get_runtime_context().gcs_address
    assert drain_node(other, gcs_address=address, by_t=time.time() + 2 * WARNING_S, reason="a person") == ""
    by_others_s = eventually(lambda: not is_there(other), limit_s=WARNING_S)
    told_t = time.time()
    cloud.say({"Events": [EVENT | {"NotBefore": ""}]})
    heard_s = eventually(lambda: node in draining_nodes())
    left_s = draining_nodes()[node] - told_t
    early = list(cloud.posted)
    ray.kill(work)  # as a run that has left
    gone_s = eventually(lambda: not is_there(node))
    agents.follow(ray.nodes())
    return {
        "by_others_s": by_others_s, "heard_s": heard_s, "left_s": left_s, "gone_s": gone_s, "early": len(early),
        "posted": [json.loads(body) for body in cloud.posted],
    }  # fmt: skip


def is_there(node: str) -> bool:
    return any(row["Alive"] for row in ray.nodes() if row["NodeID"] == node)


if __name__ == "__main__":
    main()
    sys.exit()
