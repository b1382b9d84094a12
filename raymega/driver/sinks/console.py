"""What a person sees of a run: plain lines, or a live view where there is a terminal. The client owns it; workers and
the controller write to files.

    step: 10  loss: 7.1234  grad_norm: 1.2345  memory: 2.65GiB(2.79%)  tps: 1,772  tflops: 0.13  mfu: -  mesh: ..
    step: 13  driver: w2 is lost: its process died (node 4c1f); the step ends for everyone
    step: 13  driver: Settling for 60 s

Plain output has one line for `log.every_steps` steps, a sign of life at least every minute, no control characters,
and says the same thing once, ten times, a hundred times, with a count.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TextIO

from raymega.control.commands import AssignPlan, WriteRepair, WriteTransition
from raymega.control.events import Evaluated, ShardsSaved, StateMoved, StepCommitted
from raymega.control.loop import Turn
from raymega.driver.records.progress import Facts, Memory, Progress, records_of
from raymega.driver.records.summary import banner, plan_lines, summary
from raymega.metrics import StepRecord, step_line

SILENCE_S = 60.0
QUIET = (StepCommitted, ShardsSaved, Evaluated, StateMoved)  # what they lead to stands in the lines of steps


class Console(Protocol):
    """Shows a run. All times are of the controller's clock, all calls from one thread."""

    def saw(self, turn: Turn) -> None: ...
    def remember(self, memory: Memory) -> None:
        """What the workers hold now."""

    def tick(self, t: float) -> None:
        """Time has passed."""

    def note(self, text: str) -> None:
        """Say something that is no turn: a warning, what the client does."""

    def close(self) -> None:
        """Say how the run ended, if it did."""


@dataclass(slots=True)
class Repeats:
    """Says a thing the first time, the tenth, the hundredth; numbers in it do not make it another thing."""

    _said: Counter[str] = field(default_factory=Counter)
    _last: dict[str, str] = field(default_factory=dict)

    def worth(self, text: str) -> str | None:
        """What to say of `text` now; None: nothing."""
        key = re.sub(r"\d+(\.\d+)?", "#", text)
        self._said[key] += 1
        count, self._last[key] = self._said[key], text
        if count == 1:
            return text
        return f"{text} ({count} times so far)" if count in (10, 100, 1000, 10_000) else None

    def summed(self) -> Iterator[str]:
        """How often each thing happened that happened more than once, and how it did last."""
        for key, count in self._said.items():
            if count > 1:
                yield f"{count} times, the last: {self._last[key]}"


class LineConsole:
    """One plain line at a time, for files, pipes and jobs."""

    def __init__(self, facts: Facts, *, t: float, out: TextIO) -> None:
        self._facts, self._out = facts, out
        self._progress, self._memory, self._repeats = Progress.begin(t), Memory(), Repeats()
        self._t, self._said_t, self._state_t = t, t, t

    def saw(self, turn: Turn) -> None:
        is_first = self._progress.plan is None
        self._progress, self._t = self._progress.after(turn), turn.t
        if type(turn.before) is not type(turn.decision.state):
            self._state_t = turn.t
        for text in notes_of(turn):
            self.note(text)
        if any(isinstance(command, AssignPlan) for command in turn.decision.commands):
            self._say(plan_text(self._progress, facts=self._facts, is_first=is_first))
        shown = [record for record in records_of(turn) if is_shown(record, facts=self._facts)]
        self._say(line_of(record, self._progress, facts=self._facts, memory=self._memory) for record in shown)

    def remember(self, memory: Memory) -> None:
        self._memory = memory

    def tick(self, t: float) -> None:
        self._t = max(self._t, t)
        if self._t - self._said_t >= SILENCE_S:
            self._say([f"{where(self._progress)}{state_name(self._progress)} for {self._t - self._state_t:,.0f} s"])

    def note(self, text: str) -> None:
        worth = self._repeats.worth(text)
        if worth is not None:
            self._say([f"{where(self._progress)}{worth}"])

    def close(self) -> None:
        self._say(ending(self._progress, facts=self._facts, repeats=self._repeats))

    def _say(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._out.write(line.replace("\r", " ") + "\n")
            self._said_t = self._t
        self._out.flush()


def ending(progress: Progress, *, facts: Facts, repeats: Repeats) -> Iterator[str]:
    """What is said at last; nothing of a run that never began."""
    yield from repeats.summed()
    if progress.finish is not None:
        yield summary(progress, facts=facts)


def notes_of(turn: Turn) -> Iterator[str]:
    """What the driver says of a turn."""
    if turn.decision.reason and not isinstance(turn.event, QUIET):
        yield turn.decision.reason
    for command in turn.decision.commands:
        match command:
            case WriteRepair():
                yield command.reason
            case WriteTransition():
                yield transition_text(command)


def transition_text(made: WriteTransition) -> str:
    """What became of a change of the plan, and what it cost."""
    if not made.certified:
        return f"{made.after} is given up and {made.before} goes on, after {made.actual_s:.2f} s: {made.reason}"
    cost = f"a pause of {made.actual_s:.2f} s ({made.predicted_s:.2f} s predicted), {made.bytes_moved:,} bytes moved"
    became = f"has become {made.after}" if made.after != made.before else "goes on with other workers"
    return f"after step {made.step} {made.before} {became}, with {cost}: {made.cause}"


def where(progress: Progress) -> str:
    """What a line of the driver's begins with."""
    return f"step: {progress.story.committed if progress.story is not None else 0}  driver: "


def state_name(progress: Progress) -> str:
    """The state's name, as people read it."""
    return type(progress.state).__name__ if progress.state is not None else "starting"


def plan_text(progress: Progress, *, facts: Facts, is_first: bool) -> list[str]:
    """The plan in force: with the run's name the first time."""
    if is_first:
        return [banner(progress, facts=facts)]
    return list(plan_lines(progress.plan, progress)) if progress.plan is not None else []


def is_shown(record: StepRecord, *, facts: Facts) -> bool:
    """Does this step get a line?"""
    ends = record.step in (1, facts.config.training.steps)
    return ends or record.step % facts.config.log.every_steps == 0 or record.val_loss is not None


def line_of(record: StepRecord, progress: Progress, *, facts: Facts, memory: Memory) -> str:
    """The line of a step that has just been recorded."""
    return step_line(record, gauges=progress.gauges(record, facts=facts, memory=memory))
