"""A step on the clock: as the newest trace of a run measured it, and as it was predicted.

RUNDIR/traces/step-60.json (Chrome trace) --> rows of workers
plan, schedule, hardware                  --> rows of teams
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raymega.config.schema import Config
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError
from raymega.pictures.steps import Bar, Row
from raymega.pipeline.timeline import Timeline
from raymega.plan.job import job_of
from raymega.plan.parallel_layout import recompute_of
from raymega.plan.plan import Plan
from raymega.plan.predict import predicted_timeline
from raymega.plan.programs import timeline_of
from raymega.report.foretold import hardware_of

MICROSECOND = 1e-6
PLACE = re.compile(r"(\S+) \(replica (\d+), stage (\d+), shard (\d+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The trace of a step."""

    step: int
    rows: tuple[Row, ...]

    @property
    def span_s(self) -> float:
        """From its beginning to its end."""
        return max((bar.end_s for row in self.rows for bar in row.bars), default=0.0)


def measured_step(run: RunDirectory, *, step: int | None = None) -> Measured | None:
    """The trace of `step`, or the newest one that is whole; None: there is none at all.

    Raises: ConfigError for a step that was not traced.
    """
    files = sorted(run.traces.glob("step-*.json"), key=_step_of, reverse=True)
    if step is not None:
        there = ", ".join(str(_step_of(file)) for file in files) or "none"
        files = [file for file in files if _step_of(file) == step]
        if not files:
            raise ConfigError(f"step {step} was not traced; traces: {there}. log.trace_steps says which steps are.")
    for file in files:
        try:
            trace = json.loads(file.read_text(encoding="utf-8"))
            return Measured(step=_step_of(file), rows=tuple(_rows(trace["traceEvents"])))
        except (OSError, ValueError, LookupError, TypeError):  # not a trace of ours
            continue
    return None


def _step_of(file: Path) -> int:
    digits = re.search(r"\d+", file.stem)
    return int(digits[0]) if digits else 0


def _rows(events: list[dict[str, Any]]) -> Iterator[Row]:  # Any: JSON
    named = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    lanes = {
        (event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"
    }  # fmt: skip
    begin_s = min((event["ts"] for event in events if event["ph"] == "X" and _is_work(event, lanes)), default=0.0)
    for pid, name in sorted(named.items(), key=lambda item: _place(item[1])):
        bars = [
            Bar(
                name=event["name"],
                begin_s=max(0.0, (event["ts"] - begin_s) * MICROSECOND),
                end_s=(event["ts"] + event["dur"] - begin_s) * MICROSECOND,
                beside=lanes[pid, event["tid"]] != "compute",
            )
            for event in events
            if event["ph"] == "X" and event["pid"] == pid and event["ts"] + event["dur"] > begin_s
        ]
        yield Row(label=_label(name), bars=tuple(bars))


def _is_work(event: dict[str, Any], lanes: dict[tuple[int, int], str]) -> bool:  # Any: JSON
    return lanes[event["pid"], event["tid"]] == "compute"


def _place(name: str) -> tuple[int, ...]:
    found = PLACE.match(name)
    return tuple(int(number) for number in found.groups()[1:]) if found else ()


def _label(name: str) -> str:
    found = PLACE.match(name)
    return f"{found[1]}  replica {found[2]} stage {found[3]}" if found else name


def predicted_step(config: Config, plan: Plan | None, *, cluster: str | None) -> tuple[Row, ...]:
    """The schedule of `plan` as its passes are predicted; none without a plan that is whole."""
    if plan is None or plan.lost:
        return ()
    hardware = hardware_of(config, plan, cluster=cluster)
    if hardware is None:
        return tuple(_team_rows(timeline_of(plan)))
    there, constants = hardware
    again = recompute_of(config)
    found = predicted_timeline(plan, job=job_of(config), cluster=there, recompute=again, constants=constants)
    return tuple(_team_rows(found))


def _team_rows(found: Timeline) -> Iterator[Row]:
    for team, spans in found.spans.items():
        bars = (Bar(name=str(span.action), begin_s=span.start_s, end_s=span.end_s) for span in spans)
        yield Row(label=team, bars=tuple(bars))
