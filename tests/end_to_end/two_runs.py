"""Two runs on one cluster: the one that goes first comes later, and the other gives way and grows again; told as JSON.

2 devices    low dp=auto | high comes, with priority 5, for one | high is over
low          2           | 1                                    | 2
high                     | 1, to its end                        |
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.live_run import LiveRun
from raymega.driver.records.json_lines import read_lines
from tests.end_to_end.paced_worker import FLAG
from tests.end_to_end.walk import Followed

MANY_STEPS = 100_000


def main(path: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    os.environ["RAY_ADDRESS"] = cluster.address
    low = None
    try:
        low = Followed(Path(path), name="low", paced=True, steps=MANY_STEPS, data_parallel_size="auto")
        told = both(low, path=Path(path))
    finally:
        print(low.out.getvalue() if low is not None else "it has not begun", file=sys.stderr)
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(told))


def both(low: Followed, *, path: Path) -> dict[str, Any]:
    low.until_step(10)
    first = set(workers_of(low))
    high = Followed(path, name="high", paced=False, steps=60, elastic={"priority": 5}, data_parallel_size=1)
    told: dict[str, Any] = {"shrunk": low.until_resized(), "stayed": sorted(first & set(workers_of(low)))}
    told["high"] = high.end().exit_code
    told["grown"] = low.until_resized()
    (low.run_dir.path / FLAG).unlink()
    LiveRun.find("low").stop()
    told["low"] = low.end().exit_code
    return told | {"lost": [list(read_lines(run.run_dir.events))[-1]["steps_lost"] for run in (low, high)]}


def workers_of(run: Followed) -> tuple[str, ...]:
    """Who has a part in its plan now."""
    state: Any = run.turns[-1].decision.state  # Any: it trains
    workers: tuple[str, ...] = state.plan.living
    return workers


if __name__ == "__main__":
    main(sys.argv[1])
