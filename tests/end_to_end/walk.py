"""A run on a cluster whose nodes go and come, and whose size is changed; prints what happened as JSON.

    head 2, n1 2     dp=2 pp=2
    head 2           one of two      n1 is spot, and its cloud says that it is to go: the run's agent tells Ray
    head 2, n2 2     dp=2 pp=2       n2 comes
    head 2, n2 2     dp=1 pp=2       raymega resize --plan dp=1,pp=2
    head 2, n2 2     dp=2 tp=2       asked for, with two new workers
    head 2           less            n2 is drained

A program of its own, since a process is connected to one Ray at a time.
"""

import io
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from raymega.config.schema import Config
from raymega.control.commands import WriteTransition
from raymega.control.loop import Turn
from raymega.driver.client import RunHandle
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.live_run import LiveRun
from raymega.driver.news import Ended
from raymega.driver.preflight import prepare, resolved, write_config
from raymega.driver.sinks.console import LineConsole
from raymega.driver.spot.choosing import AWS_VARIABLE
from raymega.driver.train import facts_of, launch_of
from raymega.mesh import Mesh
from raymega.plan.cluster import MARKET_LABEL, SPOT
from tests.driver.following import Following
from tests.driver.spot.loopback import Cloud, serving
from tests.end_to_end.client import TINY
from tests.end_to_end.paced_worker import FLAG
from tests.waiting import LIMIT_S, eventually

WARNING_S = 60.0
STEPS = 600
BIN = Path(sys.executable).parent


class Followed(Following):
    """A run of this process, shown as it goes."""

    def __init__(
        self, path: Path, *, name: str, paced: bool, steps: int = STEPS, elastic: dict[str, Any] | None = None,
        **axes: int | str,
    ) -> None:  # fmt: skip
        sections = {
            **TINY,
            "run": {"name": name, "dir": str(path), "device": "cpu", "seed": 7},
            "parallelism": axes,
            "training": {**TINY["training"], "steps": steps},
            "elastic": {"steady_s": 0.5, "min_devices": 1, **(elastic or {})},
            "log": {"tensorboard": False, "every_steps": 50},
        }
        full, self.run_dir = resolved(Config.model_validate(sections))
        self.run_dir.create()
        prepared = prepare(full, self.run_dir, resume="none")
        write_config(prepared)
        if paced:
            (self.run_dir.path / FLAG).touch()
        facts, self.out = facts_of(prepared), io.StringIO()
        self.console = LineConsole(facts, t=time.time(), out=self.out)
        launch = replace(launch_of(prepared, facts=facts, device="cpu"), owner_lease_s=600.0)
        factory = "tests.end_to_end.paced_worker:PacedWorker"
        self.handle = RunHandle.begin(replace(launch, factory=factory) if paced else launch)
        super().__init__(lambda _: self.handle.news(), saw=self.console.saw)

    def until_resized(self, after: str | None = None) -> dict[str, Any]:
        """The next change of the plan that is certified; `after`: the next of them that makes this mesh."""

        def changes(turn: Turn) -> list[WriteTransition]:
            made = [command for command in turn.decision.commands if isinstance(command, WriteTransition)]
            return [change for change in made if change.certified and after in (None, str(change.after))]

        turn = self.until(lambda turn: bool(changes(turn)))
        (change,) = changes(turn)
        return {
            "t": turn.t, "after": str(change.after), "actual_s": change.actual_s, "predicted_s": change.predicted_s,
            "bytes": change.bytes_moved, "step": change.step,
        }  # fmt: skip

    def finish(self) -> Ended:
        ended = self.end()
        self.console.close()
        self.handle.close()
        return ended


def main(path: str) -> None:
    with serving("aws") as cloud:
        os.environ[AWS_VARIABLE] = cloud.base  # nodes take it from this process
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
        os.environ["RAY_ADDRESS"] = cluster.address
        node, run = cluster.add_node(num_cpus=2, labels={MARKET_LABEL: SPOT}), None
        told: dict[str, Any] = {}
        try:
            told["calm"] = Followed(Path(path), name="calm", paced=False).finish().exit_code
            run = Followed(Path(path), name="walk", paced=True, **MESH)
            told |= walk(run, cluster=cluster, node=node, cloud=cloud)
        finally:
            print(run.out.getvalue() if run is not None else "it has not begun", file=sys.stderr)
            ray.shutdown()
            cluster.shutdown()
    print(json.dumps(told))


MESH = {"data_parallel_size": 2, "pipeline_model_parallel_size": 2}


def walk(run: Followed, *, cluster: Cluster, node: Any, cloud: Cloud) -> dict[str, Any]:
    told: dict[str, Any] = {}
    run.until_step(20)
    told["notice_t"] = time.time()
    cloud.say({"action": "terminate", "time": datetime.fromtimestamp(told["notice_t"] + WARNING_S, UTC).isoformat()})
    told["left"] = run.until_resized()
    cluster.remove_node(node)  # Ray itself waits for whatever else has found a place there
    eventually(lambda: sum(node["Alive"] for node in ray.nodes()) == 1)
    back = cluster.add_node(num_cpus=2)
    told["grown"] = run.until_resized("dp=2 tp=1 pp=2")  # what is left may have become a mesh of its own before
    resize = subprocess.run(
        [BIN / "raymega", "resize", str(run.run_dir.path), "--plan", "dp=1,pp=2"],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    told |= {
        "resize": (resize.returncode, resize.stdout, resize.stderr),
        "smaller": run.until_resized("dp=1 tp=1 pp=2"),
    }
    live = LiveRun.find("walk")
    told["refused"] = live.resize(devices=64).reason
    told["asked"] = live.resize(mesh=Mesh(dp=2, tp=2, pp=1)).reason
    told["other"] = run.until_resized("dp=2 tp=2 pp=1")
    drain_t = time.time()
    answer, untold = live.drain(back.node_id, deadline_s=10.0, cause="a test")
    told |= {"drain": (answer.accepted, answer.reason, untold), "drained": run.until_resized(), "drain_t": drain_t}
    (run.run_dir.path / FLAG).unlink()
    ended = run.finish()
    return told | {"ended": (ended.exit_code, ended.reason), "said": run.out.getvalue()}


if __name__ == "__main__":
    main(sys.argv[1])
