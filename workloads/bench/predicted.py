"""`python -m workloads.bench.predicted`: predicted against measured seconds of a step, on layouts that were not fitted.

real compute   constants fitted on two layouts of one and two workers     -> other micro-batches, other meshes of two
stand-ins      stages that wait a known time, fitted on two depths        -> other depths, replicas

What `raymega calibrate` measures: rates, what the passes of two small models reach of them, alone and beside others.
What is fitted on the two layouts: how far the pace of whole steps is from that of such passes, and a step's host.
Real layouts are measured in turn (`in_turn`); hosts of more stand-ins than cores take turns at the end of a step.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

import torch

from raymega.cli.calibrate import calibrated_here
from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.pipeline.actions import Kind
from raymega.pipeline.timeline import finish_s
from raymega.plan.calibration import REACHED, calibration_from, fitted
from raymega.plan.cluster import Cluster
from raymega.plan.fitted import Constants
from raymega.plan.job import job_of
from raymega.plan.parallel_layout import recompute_of
from raymega.plan.predict import predict
from raymega.plan.programs import team_programs_of
from workloads.bench.bubble import run_steps
from workloads.bench.in_turn import steps_in_turn
from workloads.bench.settings import STEADY, VOCAB_SIZE, plan_of
from workloads.bench.stand_in import BACKWARD_S, FORWARD_S

STEPS, ROUNDS = 6, 8
GOAL, CHOSEN_GOAL = 0.10, 0.05
CALIBRATED = ("matmul_share", "memory_share", "pass_s")
FITTED = ("matmul_share", "step_s")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A layout, and seconds of its step; `more`: of it to be told."""

    layout: Layout
    guess_s: float
    real_s: float
    more: str = ""

    @property
    def error(self) -> float:
        return self.guess_s / self.real_s - 1

    def __str__(self) -> str:
        return f"  {self.layout!s:<34} {self.guess_s:8.3f} s {self.real_s:8.3f} s {self.error:+7.1%}{self.more}"


def main(wanted: tuple[str, ...]) -> int:
    """Print the rows of `real`, `stand-ins`, or both, and whether the goals are met; 1: they are not."""
    torch.set_num_threads(1)
    met = True
    for name, rows in (("stand-ins", stand_in_rows), ("real", real_rows)):
        if not wanted or name in wanted:
            print(f"{name:<36} predicted   measured   error")
            found = list(_shown(rows()))
            met &= _verdict(found)
    return 0 if met else 1


def _shown(rows: Iterator[Row]) -> Iterator[Row]:
    for row in rows:
        print(row, flush=True)
        yield row


def _verdict(rows: Sequence[Row]) -> bool:
    """Say whether every layout is predicted within `GOAL`, and the best predicted is as good as the best measured."""
    near = [row for row in rows if abs(row.error) <= GOAL]
    ok = len(near) == len(rows)
    print(f"  within {GOAL:.0%}: {len(near)} of {len(rows)} layouts; goal {'met' if ok else 'not met'}")
    shared = [row for row in rows if row.layout.batch == rows[0].layout.batch]
    chosen, best = min(shared, key=lambda row: row.guess_s), min(shared, key=lambda row: row.real_s)
    behind = chosen.real_s / best.real_s - 1
    fine = behind <= CHOSEN_GOAL
    print(
        f"  chosen of a batch of {chosen.layout.batch}: {chosen.layout}, {behind:.1%} behind the best measured; "
        f"goal of {CHOSEN_GOAL:.0%} {'met' if fine else 'not met'}",
        flush=True,
    )
    return ok and fine


def real_rows() -> Iterator[Row]:
    """Nano's model on at most two workers."""
    cluster, measured_here = calibration_from(calibrated_here(device="cpu", nodes=1).to_data())
    print(f"  {_told(measured_here, CALIBRATED)}; alone {cluster.nodes[0].device.alone:.3f} times as fast")
    layouts = {f"{layout}": layout for layout in (*REAL_FITTED, *REAL)}
    steps = steps_in_turn({name: _nano(layout) for name, layout in layouts.items()}, rounds=ROUNDS)
    real_s = {layouts[name]: median(found.wall_s) for name, found in steps.items()}

    def predict_s(constants: Constants) -> list[float]:
        return [_predicted(layout, cluster, constants) for layout in REAL_FITTED]

    measured = [real_s[layout] for layout in REAL_FITTED]
    constants = fitted(measured_here, names=FITTED, measured_s=measured, predict_s=predict_s)
    print(f"  fitted on {'; '.join(map(str, REAL_FITTED))}: {_told(constants, FITTED)}")
    for layout in REAL_FITTED:
        print(
            f"    {layout!s:<32} {_predicted(layout, cluster, measured_here):8.3f} s unfitted, {real_s[layout]:.3f} s"
        )
    for layout in REAL:
        used_s, unfitted = median(steps[f"{layout}"].processor_s), _predicted(layout, cluster, measured_here)
        yield Row(
            layout=layout, guess_s=_predicted(layout, cluster, constants), real_s=real_s[layout],
            more=f"   unfitted {unfitted / real_s[layout] - 1:+7.1%}; processors {used_s:.3f} s",
        )  # fmt: skip


def _told(constants: Constants, names: Sequence[str]) -> str:
    return ", ".join(f"{name} {getattr(constants, name):.3g}" for name in names)


def stand_in_rows() -> Iterator[Row]:
    """Stages that wait."""
    measured = [step_s(_waiting(layout)) for layout in STAND_IN_FITTED]

    def predict_s(constants: Constants) -> list[float]:
        return [_waited_s(layout, constants) for layout in STAND_IN_FITTED]

    constants = fitted(REACHED, names=("pass_s", "step_s"), measured_s=measured, predict_s=predict_s)
    host = f"pass {constants.pass_s:.4f} s, step {constants.step_s:.4f} s"
    print(f"  fitted on {'; '.join(map(str, STAND_IN_FITTED))}: {host}")
    for layout in STAND_INS:
        yield Row(layout=layout, guess_s=_waited_s(layout, constants), real_s=step_s(_waiting(layout)))


def step_s(config: Config) -> float:
    """Measured seconds of a step, the median of several."""
    steps = run_steps(config, plan_of(config), num_steps=STEPS)
    starts = [min(start for worker in step for _, start, _ in worker) for step in steps]
    return median(after - before for before, after in pairwise(starts))


def _predicted(layout: Layout, cluster: Cluster, constants: Constants) -> float:
    config = _nano(layout)
    return predict(
        plan_of(config), job=job_of(config), cluster=cluster, recompute=recompute_of(config), constants=constants
    ).step_s


def _waited_s(layout: Layout, constants: Constants) -> float:
    """The clock of the real actions, each as long as it waits and the host's part on top."""
    plan = plan_of(_waiting(layout))
    times = {Kind.F: FORWARD, Kind.B: 2 * FORWARD}
    durations = {(v, kind): times[kind] + constants.pass_s for v in range(len(plan.layers)) for kind in times}
    in_turn = max(1.0, plan.mesh.size / (os.cpu_count() or 1))
    passes_s = finish_s(team_programs_of(plan), durations=durations, num_stages=len(plan.layers))
    return passes_s + constants.step_s * in_turn


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


if __name__ == "__main__":
    sys.exit(main(tuple(sys.argv[1:])))
