"""Directories of runs in virtual time, with all that a real run writes."""

import json
from pathlib import Path

from raymega.config.schema import Config
from raymega.control.states import Checkpoint
from raymega.driver.records.events_sink import EventsSink
from raymega.driver.records.metrics_sink import MetricsSink
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.trace import write_trace
from raymega.plan.plan import Plan
from raymega.worker.interface import TraceRow
from tests.driver.test_accounting import CONFIG, trained


def told_run(
    path: Path, *, checkpoint: Checkpoint | None = None, config: Config = CONFIG, **faults: object
) -> RunDirectory:
    """A run of 20 steps over dp=2 pp=2, with `faults` as in `FakeHands`; it goes on from `checkpoint`."""
    run = RunDirectory(path=path)
    step = checkpoint.step if checkpoint is not None else 0
    sinks = (MetricsSink(run.metrics, step=step), EventsSink(run.events))
    trained(run, checkpoint=checkpoint, config=config, watchers=sinks, **faults)
    for sink in sinks:
        sink.close()
    return run


def long_run(path: Path, *, steps: int) -> RunDirectory:
    """A run of so many steps that lost a worker soon, and one in the middle."""
    longer = CONFIG.model_copy(
        update={
            "training": CONFIG.training.model_copy(update={"steps": steps}),
            "checkpoint": CONFIG.checkpoint.model_copy(update={"every_steps": max(5, steps // 200)}),
        }
    )
    return told_run(path, config=longer, kill_once={13: 2, steps // 2: 1})


def gone_on(path: Path) -> RunDirectory:
    """A run that lost a worker, and was started again for as many steps, and lost one again."""
    told_run(path, kill_once={13: 2})
    more = CONFIG.model_copy(update={"training": CONFIG.training.model_copy(update={"steps": 40})})
    newest = Checkpoint(step=20, uri="mem://20", tokens_total=16_000)
    return told_run(path, checkpoint=newest, config=more, t=9000.0, kill_once={33: 1})


def cut_off(run: RunDirectory) -> RunDirectory:
    """The same run as it lies there while its last lines are being written."""
    for file in (run.metrics, run.events, *run.journal.glob("*.jsonl")):
        text = file.read_bytes()
        lines = text.splitlines(keepends=True)
        file.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:20])
    return run


def with_gaps(run: RunDirectory) -> RunDirectory:
    """The same run, first evaluated after its fifth step; its eighth was skipped, and what it came to was no number."""
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    for line in lines[4::5]:
        line["val_loss"] = 6.5
    lines[7] |= {"loss": None, "grad_norm": None, "skipped": True}
    run.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def traced(run: RunDirectory, *, plan: Plan, step: int = 7) -> RunDirectory:
    """A trace of a step in which every worker runs two passes and waits."""
    rows = {
        worker: [
            TraceRow(name="batch", start_s=49.0, duration_s=1.0, lane="data"),
            TraceRow(name=f"{plan.mesh.coord(rank).stage}F0", start_s=50.0 + rank / 10, duration_s=0.1, lane="compute"),
            TraceRow(name="wait", start_s=50.1 + rank / 10, duration_s=0.1, lane="communication"),
        ]
        for rank, worker in enumerate(plan.workers)
    }
    write_trace(run.traces, rows, step=step, plan=plan)
    return run


def sheets(run: RunDirectory) -> RunDirectory:
    """What two workers told of their seconds."""
    known = [
        {
            "worker": "w0",
            "born_t": 1.0,
            "from_t": 0.0,
            "until_t": 9.0,
            "before_s": 1.0,
            "seconds": {"start": 1.0, "useful": 8.0},
        },
        {
            "worker": "w1",
            "born_t": 1.0,
            "from_t": 0.0,
            "until_t": 9.0,
            "before_s": 1.0,
            "seconds": {"start": 3.0, "useful": 6.0},
        },
    ]
    run.workers.write_text(json.dumps(known))
    return run
