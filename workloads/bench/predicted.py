"""`python -m workloads.bench.predicted`: predicted against measured seconds of a step, on layouts that were not fitted.

real compute   constants fitted on two layouts of one and two workers     -> other micro-batches, other meshes of two
stand-ins      stages that wait a known time, fitted on two depths        -> other depths, replicas

What is fitted: the share of the measured rate that a model's products reach, the host's seconds of a pass and a step.
A step is measured from its first action to that of the next one.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch

from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.driver.measuring import measured_device, measured_link
from raymega.pipeline.actions import Kind
from raymega.pipeline.timeline import finish_s
from raymega.plan.calibration import REACHED, fitted
from raymega.plan.cluster import Cluster, Node
from raymega.plan.fitted import Constants
from raymega.plan.hardware import Device, Link, Links
from raymega.plan.job import job_of
from raymega.plan.predict import predict
from raymega.plan.programs import team_programs_of
from workloads.bench.bubble import run_steps
from workloads.bench.settings import STEADY, VOCAB_SIZE, plan_of
from workloads.bench.stand_in import BACKWARD_S, FORWARD_S

STEPS = 6
FITTED = ("matmul_share", "pass_s", "step_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A mesh and its micro-batches."""

    dp: int
    pp: int
    micro: int
    batch: int

    def __str__(self) -> str:
        return f"dp={self.dp} pp={self.pp} micro-batch {self.micro} of {self.batch}"


REAL_FITTED = (Layout(dp=1, pp=1, micro=4, batch=32), Layout(dp=2, pp=1, micro=8, batch=32))
REAL = (
    Layout(dp=1, pp=1, micro=8, batch=32), Layout(dp=1, pp=2, micro=4, batch=32), Layout(dp=1, pp=2, micro=8, batch=32),
    Layout(dp=2, pp=1, micro=4, batch=32), Layout(dp=1, pp=2, micro=4, batch=64),
)  # fmt: skip
STAND_IN_FITTED = (Layout(dp=1, pp=2, micro=1, batch=8), Layout(dp=2, pp=2, micro=1, batch=8))
STAND_INS = (
    Layout(dp=1, pp=4, micro=1, batch=8), Layout(dp=1, pp=8, micro=1, batch=8), Layout(dp=2, pp=3, micro=1, batch=12),
    Layout(dp=4, pp=2, micro=1, batch=16), Layout(dp=8, pp=1, micro=1, batch=32),
)  # fmt: skip
FORWARD = 0.05


def main(wanted: tuple[str, ...]) -> None:
    """Print the rows of `real`, `stand-ins`, or both."""
    torch.set_num_threads(1)
    for name, rows in (("stand-ins", stand_in_rows), ("real", real_rows)):
        if not wanted or name in wanted:
            print(f"{name}: predicted and measured seconds of a step")
            for row in rows():
                print(row, flush=True)


def real_rows() -> Iterator[str]:
    """Nano's model on at most two workers."""
    cluster = cluster_here()
    measured = [step_s(_nano(layout)) for layout in REAL_FITTED]

    def predict_s(constants: Constants) -> list[float]:
        return [_predicted(layout, cluster, constants) for layout in REAL_FITTED]

    constants = fitted(REACHED, names=FITTED, measured_s=measured, predict_s=predict_s)
    yield f"  fitted on {'; '.join(map(str, REAL_FITTED))}: {constants}"
    for layout in REAL:
        yield _row(layout, _predicted(layout, cluster, constants), step_s(_nano(layout)))


def stand_in_rows() -> Iterator[str]:
    """Stages that wait."""
    measured = [step_s(_waiting(layout)) for layout in STAND_IN_FITTED]

    def predict_s(constants: Constants) -> list[float]:
        return [_waited_s(layout, constants) for layout in STAND_IN_FITTED]

    constants = fitted(REACHED, names=("pass_s", "step_s"), measured_s=measured, predict_s=predict_s)
    host = f"pass {constants.pass_s:.4f} s, step {constants.step_s:.4f} s"
    yield f"  fitted on {'; '.join(map(str, STAND_IN_FITTED))}: {host}"
    for layout in STAND_INS:
        yield _row(layout, _waited_s(layout, constants), step_s(_waiting(layout)))


def step_s(config: Config) -> float:
    """Measured seconds of a step, the median of several."""
    steps = run_steps(config, plan_of(config), num_steps=STEPS)
    starts = [min(start for worker in step for _, start, _ in worker) for step in steps]
    return median(after - before for before, after in pairwise(starts))


def cluster_here() -> Cluster:
    """This machine as one node of two devices, as it was measured."""
    device, way = measured_device(device="cpu"), measured_link()
    link = Link(name="here", latency_s=way.latency_s, bytes_per_s=way.bytes_per_s)
    core = Device(
        name=device.name,
        flops_per_s={"fp32": device.flops_per_s["fp32"]},
        memory_bytes=device.memory_bytes,
        memory_bytes_per_s=device.memory_bytes_per_s,
    )
    return Cluster(nodes=(Node(id="here", devices=2, device=core),), links=Links(device=link, node=link, rack=link))


def _predicted(layout: Layout, cluster: Cluster, constants: Constants) -> float:
    config = _nano(layout)
    return predict(plan_of(config), job=job_of(config), cluster=cluster, constants=constants).step_s


def _waited_s(layout: Layout, constants: Constants) -> float:
    """The clock of the real actions, each as long as it waits and the host's part on top."""
    plan = plan_of(_waiting(layout))
    times = {Kind.F: FORWARD, Kind.B: 2 * FORWARD}
    durations = {(v, kind): times[kind] + constants.pass_s for v in range(len(plan.layers)) for kind in times}
    return finish_s(team_programs_of(plan), durations=durations, num_stages=len(plan.layers)) + constants.step_s


def _nano(layout: Layout) -> Config:
    return _config(preset_text("nano"), layout, extra=STEADY)


def _waiting(layout: Layout) -> Config:
    os.environ[FORWARD_S], os.environ[BACKWARD_S] = str(FORWARD), str(2 * FORWARD)
    extra = (
        "model.custom=workloads.bench.stand_in:build", "model.hidden_size=64", f"model.num_layers={layout.pp}",
        "data.seq_len=16",
    )  # fmt: skip
    return _config("", layout, extra=extra)


def _config(text: str, layout: Layout, *, extra: Sequence[str]) -> Config:
    keys = (
        f"parallelism.data_parallel_size={layout.dp}", f"parallelism.pipeline_model_parallel_size={layout.pp}",
        f"training.batch_size={layout.batch}", f"training.micro_batch_size={layout.micro}",
    )  # fmt: skip
    loaded = load(text, source="bench", overrides=(*extra, *keys))
    return resolve(loaded, vocab_size=VOCAB_SIZE, name="bench-predicted", seed=1)


def _row(layout: Layout, guess: float, real: float) -> str:
    return f"  {layout!s:<34} {guess:8.3f} s {real:8.3f} s {guess / real - 1:+7.1%}"


if __name__ == "__main__":
    main(tuple(sys.argv[1:]))
