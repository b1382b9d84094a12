"""Chrome traces of chosen steps: what each worker did when. Open them in ui.perfetto.dev or chrome://tracing.

    pid   one worker each, named `w3 (replica 1, stage 0, shard 1)`
    tid   what goes on at once in it: compute, communication, hidden (sums of gradients under compute), data
    X     a stretch: name, begin and duration in microseconds

Workers measure by their own clocks; rows carry unix seconds, so that workers of one machine line up, and those of
others as well as their clocks do. Format: Trace Event Format, JSON object form.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raymega.driver.records.exposure import Exposure
from raymega.driver.records.run_dir import write_whole
from raymega.plan.plan import Plan, WorkerId
from raymega.worker.interface import TraceRow


def chrome_trace(rows: Mapping[WorkerId, Iterable[TraceRow]], *, plan: Plan) -> dict[str, Any]:
    """The rows of all workers as one trace; time begins with the first of them."""
    known = {worker: tuple(stretches) for worker, stretches in rows.items()}
    first_s = min((row.start_s for stretches in known.values() for row in stretches), default=0.0)
    lanes = sorted({row.lane for stretches in known.values() for row in stretches})
    events: list[dict[str, Any]] = []
    for worker, stretches in known.items():
        rank = plan.workers.index(worker)
        at = plan.mesh.coord(rank)
        events.append(
            _named(
                "process_name",
                pid=rank,
                tid=0,
                name=f"{worker} (replica {at.replica}, stage {at.stage}, shard {at.shard})",
            )
        )
        events.extend(_named("thread_name", pid=rank, tid=lanes.index(lane), name=lane) for lane in lanes)
        events.extend(_stretch(row, pid=rank, tid=lanes.index(row.lane), first_s=first_s) for row in stretches)
    exposure = Exposure.of_traces(known)
    about = {
        "mesh": str(plan.mesh), "exposed share of gradient sums": round(exposure.of_sums, 4),
        "exposed share of the step": round(exposure.of_steps, 4),
    }  # fmt: skip
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def write_trace(folder: Path, rows: Mapping[WorkerId, Iterable[TraceRow]], *, step: int, plan: Plan) -> Path:
    """Write the trace of `step`, all or nothing; returns the file."""
    file = folder / f"step-{step}.json"
    write_whole(file, json.dumps(chrome_trace(rows, plan=plan)))
    return file


def _stretch(row: TraceRow, *, pid: int, tid: int, first_s: float) -> dict[str, Any]:
    return {
        "ph": "X", "name": row.name, "pid": pid, "tid": tid,
        "ts": round((row.start_s - first_s) * 1e6, 3), "dur": round(row.duration_s * 1e6, 3),
    }  # fmt: skip


def _named(what: str, *, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}
