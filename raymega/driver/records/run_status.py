"""Where a run stands, from its directory alone: it need not be alive, nor on this machine.

quick-otter  training  step 120 of 200  loss 4.8123  generation 2  dp=2 tp=1 pp=2
2,311 tokens/s  491,520 tokens  last line 2 s ago
memory: 0.41 GB of w3 at most, 0.38 GB predicted for its stage (a step's line, on CPUs, counts libraries in)
goodput 91.2% of 1,204.3 worker-seconds went into committed steps, 80.4% into their computing (useful), 20 steps lost
    start             36.1 s    3.0%
    useful           968.3 s   80.4%    ... and so on, to 100 %
standing by: w4 on 4c1f02aa91b3
to be left: 9aa07c3e11d0 within 12 s
last: w2 is lost: its process ended; going on from step 100 with 2 devices
/home/me/runs/quick-otter

Of a run that is over and can go on, the last line is what to type:

to resume: raymega train /home/me/runs/quick-otter/config.yaml   (goes on after step 100)
"""

import time
from dataclasses import asdict, dataclass
from shlex import quote
from typing import Any

from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.driver.records.accounting import progress_of
from raymega.driver.records.console_log import last_words
from raymega.driver.records.events_sink import FORKED
from raymega.driver.records.json_lines import newest_line
from raymega.driver.records.line_shapes import EVENT_LINE
from raymega.driver.records.lock import read_owner
from raymega.driver.records.memory_use import MemoryUse, memory_lines, memory_of
from raymega.driver.records.progress import Progress
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.steps import newest_step, newest_validation
from raymega.driver.records.worker_times import (
    all_of,
    by_worker,
    goodput_of,
    goodput_words,
    read_times,
    share_of,
    table_lines,
)
from raymega.metrics import generation_words
from raymega.pictures.scale import time_words

SHOWN_DIGITS = 12  # of a node's id
UNBEGUN = "did not begin"  # a launch that came to nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """What is known of a run; `None` where nothing was written yet.

    Args:
        standing: the state of its controller while that is alive; else ended (it said so), lost (it did not), or
            forked (it has not begun, and has the state of another).
        exit_code: of a run that ended.
        reason: of the last decision.
        goodput: share of all worker-seconds that went into committed steps; `useful`: into their computing.
        worker_s: worker-seconds by category; they add up to all there were. By the workers' own sheets, else as told
            by the journal.
        workers: the same of each worker; none where they have not told yet.
        memory: of each worker of the plan, the most that its tensors took, beside what the planner predicts.
        steps_lost: steps that had been committed and had to be done again.
        standbys: worker -> node of those without a part in the plan, while the run is alive.
        draining: node -> seconds until it has to be left, while the run is alive.
        resume_step: after which it would go on; None while it is alive, and if nothing is left to do.
        since_s: seconds since the last line that the run wrote.
    """

    name: str
    directory: str
    standing: str
    step: int
    steps: int
    loss: float | None
    val_loss: float | None
    tokens_per_s: float | None
    tokens_total: int
    mesh: str | None
    generation: int | None
    exit_code: int | None
    reason: str
    since_s: float | None
    goodput: float | None
    useful: float | None
    worker_s: dict[str, float]
    workers: dict[str, dict[str, float]]
    memory: dict[str, MemoryUse]
    steps_lost: int
    standbys: dict[str, str]
    draining: dict[str, float]
    resume_step: int | None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def __str__(self) -> str:
        loss = "" if self.loss is None else f"  loss {self.loss:.4f}"
        value = "" if self.val_loss is None else f"  val_loss {self.val_loss:.4f}"
        code = "" if self.exit_code is None else f" with exit code {self.exit_code}"
        made = "" if self.generation is None else f"  {generation_words(self.generation)}"
        place = f"{made}  {self.mesh}" if self.mesh else ""
        lines = [f"{self.name}  {self.standing}{code}  step {self.step} of {self.steps}{loss}{value}{place}"]
        if self.tokens_per_s is not None and self.since_s is not None:
            ago = time_words(max(0.0, round(self.since_s)))
            lines.append(f"{self.tokens_per_s:,.0f} tokens/s  {self.tokens_total:,} tokens  last line {ago} ago")
        lines += memory_lines(self.memory)
        if self.goodput is not None:
            lost = f", {counted(self.steps_lost, noun='step')} lost" if self.steps_lost else ""
            lines.append(f"goodput {goodput_words(self.worker_s)}{lost}")
            lines += table_lines(self.worker_s)
        if self.standbys:
            seats = (f"{worker} on {node[:SHOWN_DIGITS]}" for worker, node in self.standbys.items())
            lines.append(f"standing by: {', '.join(seats)}")
        if self.draining:
            nodes = (
                f"{node[:SHOWN_DIGITS]} within {max(0.0, left_s):,.0f} s" for node, left_s in self.draining.items()
            )
            lines.append(f"to be left: {', '.join(nodes)}")
        lines += [*([f"last: {self.reason}"] if self.reason else []), self.directory]
        if self.resume_step is not None:
            config = quote(f"{self.directory}/config.yaml")
            lines.append(f"to resume: raymega train {config}   (goes on after step {self.resume_step})")
        return "\n".join(lines)


def status_of(run: RunDirectory, *, now: float | None = None) -> RunStatus:
    """Read where a run stands. Raises: StateError for a directory that is no run's, or a file that is torn."""
    progress = progress_of(run) if run.is_begun() else None
    return status_with(progress, run=run, now=time.time() if now is None else now)


def status_with(progress: Progress | None, *, run: RunDirectory, now: float) -> RunStatus:
    """The same, of a run whose journals were told already."""
    config, owner = _config_of(run), read_owner(run.lock)
    event, last = newest_line(run.events, shape=EVENT_LINE) or {}, newest_step(run.metrics) or {}
    ended = event.get("event") == "RunEnded"
    alive = owner is not None and not owner.is_over(now)
    gone = "ended" if ended else "forked" if event.get("event") == FORKED else "lost" if run.is_begun() else UNBEGUN
    standing = ("starting" if ended else str(event.get("state", "starting")).lower()) if alive else gone
    times = read_times(run.workers)
    workers = by_worker(times)
    spent = all_of(workers) if workers else dict(progress.goodput.seconds) if progress is not None else {}
    is_known = sum(spent.values()) > 0
    newest = max((line["t"] for line in (event, last) if "t" in line), default=None)
    return RunStatus(
        name=config.run.name or run.path.name,
        directory=str(run.path),
        standing=standing,
        step=last.get("step", 0),
        steps=config.training.steps,
        loss=last.get("loss"),
        val_loss=newest_validation(run.metrics),
        tokens_per_s=last.get("tokens_per_s"),
        tokens_total=last.get("tokens_total", 0),
        mesh=last.get("mesh"),
        generation=last.get("generation", event.get("generation")),
        exit_code=event["exit_code"] if ended else None,
        reason=last_words(run) if standing == UNBEGUN else str(event.get("reason", "")),
        since_s=None if newest is None else now - newest,
        goodput=goodput_of(spent) if is_known else None,
        useful=share_of(spent, "useful") if is_known else None,
        worker_s=spent if is_known else {},
        workers=workers,
        memory=memory_of(times, plan=progress.plan if progress is not None else None, config=config),
        steps_lost=progress.story.steps_lost if progress is not None and progress.story is not None else 0,
        standbys=standbys_of(progress) if alive else {},
        draining=draining_of(progress, now=now) if alive else {},
        resume_step=None if alive or gone == UNBEGUN else event["step"] if gone == "forked"
        else resume_step_of(progress, said_so=ended),
    )  # fmt: skip


def _config_of(run: RunDirectory) -> Config:
    """With which it was begun, or is about to be, or was to be. Raises: StateError where there is none."""
    launched = None if run.is_begun() else run.read_launched()
    return run.read_config() if launched is None else launched


def resume_step_of(progress: Progress | None, *, said_so: bool) -> int | None:
    """After which step a run that is over would go on; one that `said_so` has also said whether it can."""
    if said_so and progress is not None and progress.finish is not None:
        return progress.finish.resume_step
    if said_so:
        return None
    return progress.story.safe_step if progress is not None and progress.story is not None else 0


def standbys_of(progress: Progress | None) -> dict[str, str]:
    """Worker -> node of those that have a seat and no part in the plan."""
    if progress is None or progress.plan is None:
        return {}
    return {seat.worker: seat.node for seat in progress.seats if seat.worker not in progress.plan.living}


def draining_of(progress: Progress | None, *, now: float) -> dict[str, float]:
    """Node -> seconds until it has to be left."""
    if progress is None or progress.story is None:
        return {}
    return {drain.node: drain.by_t - now for drain in progress.story.outlook.draining}
