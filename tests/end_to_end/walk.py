"""A run on a cluster whose nodes go and come, and whose size is changed; prints what happened as JSON.

    head 2, n1 2     dp=2 pp=2
    head 2           one of two      Ray is told that n1 is to go, as `raymega node` does on SIGTERM
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
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from raymega.config.schema import Config
from raymega.control.commands import WriteTransition
from raymega.control.loop import Turn
from raymega.driver.client import RunHandle
from raymega.driver.console import LineConsole
from raymega.driver.controller import Ended
from raymega.driver.live_run import LiveRun
from raymega.driver.preflight import prepare, resolved, write_config
from raymega.driver.ray_private import drain_node
from raymega.driver.ray_session import NAMESPACE
from raymega.driver.train import facts_of, launch_of
from raymega.mesh import Mesh
from tests.end_to_end.client import TINY
from tests.end_to_end.paced_worker import FLAG

LIMIT_S = 90.0
STEPS = 160
BIN = Path(sys.executable).parent


class Followed:
    """A run that this process follows, turn by turn."""

    def __init__(self, path: Path, *, name: str, paced: bool, **axes: int) -> None:
        sections = {
            **TINY,
            "run": {"name": name, "dir": str(path), "device": "cpu", "seed": 7},
            "parallelism": axes,
            "training": {**TINY["training"], "steps": STEPS},
            "elastic": {"steady_s": 0.5, "min_devices": 1},
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
        self.turns: list[Turn] = []
        self.ended: Ended | None = None

    def until(self, done: Callable[[Turn], bool]) -> Turn:
        """The first turn, of those that come now, for which `done` holds."""
        limit = time.monotonic() + LIMIT_S
        while time.monotonic() < limit:
            for turn in self.more():
                if done(turn):
                    return turn
            assert self.ended is None, self.ended
        raise AssertionError(f"nothing of the kind within {LIMIT_S} s: {self.out.getvalue()[-4000:]}")

    def until_step(self, step: int) -> None:
        self.until(lambda turn: turn.decision.state.story.committed >= step)

    def until_resized(self) -> dict[str, Any]:
        """The next change of the plan."""

        def resized(turn: Turn) -> bool:
            return any(isinstance(command, WriteTransition) for command in turn.decision.commands)

        turn = self.until(resized)
        (change,) = [command for command in turn.decision.commands if isinstance(command, WriteTransition)]
        return {
            "t": turn.t, "certified": change.certified, "after": str(change.after), "actual_s": change.actual_s,
            "predicted_s": change.predicted_s, "bytes": change.bytes_moved, "step": change.step,
        }  # fmt: skip

    def more(self) -> list[Turn]:
        news = self.handle.news()
        for turn in news.turns:
            self.console.saw(turn)
        self.turns += news.turns
        self.ended = news.ended
        return list(news.turns)

    def end(self) -> Ended:
        limit = time.monotonic() + LIMIT_S
        while self.ended is None:
            assert time.monotonic() < limit, self.out.getvalue()[-4000:]
            self.more()
        self.console.close()
        self.handle.close()
        return self.ended


def main(path: str) -> None:
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    ray.init(address=cluster.address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    os.environ["RAY_ADDRESS"] = cluster.address
    node, run = cluster.add_node(num_cpus=2), None
    told: dict[str, Any] = {}
    try:
        told["calm"] = Followed(Path(path), name="calm", paced=False).end().exit_code
        run = Followed(Path(path), name="walk", paced=True, **MESH)
        told |= walk(run, cluster=cluster, node=node)
    finally:
        print(run.out.getvalue() if run is not None else "it has not begun", file=sys.stderr)
        ray.shutdown()
        cluster.shutdown()
    print(json.dumps(told))


MESH = {"data_parallel_size": 2, "pipeline_model_parallel_size": 2}


def walk(run: Followed, *, cluster: Cluster, node: Any) -> dict[str, Any]:
    told: dict[str, Any] = {}
    run.until_step(20)
    address, told["notice_t"] = ray.get_runtime_context().gcs_address, time.time()
    told["untold"] = drain_node(node.node_id, gcs_address=address, by_t=time.time() + 30.0, reason="SIGTERM")
    told["left"] = run.until_resized()
    cluster.remove_node(node)  # Ray itself waits for whatever else has found a place there
    wait_for_nodes(1)
    back = cluster.add_node(num_cpus=2)
    told["grown"] = run.until_resized()
    resize = subprocess.run(
        [BIN / "raymega", "resize", str(run.run_dir.path), "--plan", "dp=1,pp=2"],
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    told |= {"resize": (resize.returncode, resize.stdout, resize.stderr), "smaller": run.until_resized()}
    live = LiveRun.find("walk")
    told["refused"] = live.resize(devices=64).reason
    told["asked"] = live.resize(mesh=Mesh(dp=2, tp=2, pp=1)).reason
    told["other"] = run.until_resized()
    drain_t = time.time()
    answer, untold = live.drain(back.node_id, deadline_s=10.0, cause="a test")
    told |= {"drain": (answer.accepted, answer.reason, untold), "drained": run.until_resized(), "drain_t": drain_t}
    (run.run_dir.path / FLAG).unlink()
    ended = run.end()
    return told | {"ended": (ended.exit_code, ended.reason), "said": run.out.getvalue()}


def wait_for_nodes(count: int) -> float:
    """Seconds until so many nodes are alive."""
    began = time.monotonic()
    while sum(node["Alive"] for node in ray.nodes()) != count:
        assert time.monotonic() - began < LIMIT_S, f"not {count} nodes within {LIMIT_S} s"
        time.sleep(0.02)
    return time.monotonic() - began


if __name__ == "__main__":
    main(sys.argv[1])
