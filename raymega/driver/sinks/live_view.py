"""The live view of a run on a terminal: a bar, the newest figures, the loss as a curve; what happens scrolls above.

quick-otter  Training  step 120 of 200  ━━━━━━━━━━━━━━━━╸━━━━━━━━━━  eta 0:01:12
loss 4.8123   validation 4.9012   1,772 tokens/s   goodput 96.1%   bubble 12.0%   dp=2 tp=1 pp=2
▇▆▅▄▄▃▃▂▂▂▁▁
"""

from collections import deque
from typing import TextIO

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raymega.control.commands import AssignPlan
from raymega.control.loop import Turn
from raymega.driver.records.progress import Facts, Memory, Progress, records_of
from raymega.driver.sinks.console import (
    Console,
    LineConsole,
    Repeats,
    ending,
    is_shown,
    line_of,
    notes_of,
    plan_text,
    state_name,
)

BLOCKS = "▁▂▃▄▅▆▇█"
CURVE = 60  # columns of the loss curve
REFRESH_PER_S = 4


def open_console(facts: Facts, *, t: float, out: TextIO) -> Console:
    """The live view on a terminal that can move its cursor, plain lines anywhere else."""
    screen = RichConsole(file=out)
    return (
        LiveConsole(facts, t=t, screen=screen)
        if screen.is_terminal and not screen.is_dumb_terminal
        else LineConsole(facts, t=t, out=out)
    )


class LiveConsole:
    """A view at the bottom of the terminal that is drawn anew; lines of steps and events scroll above it."""

    def __init__(self, facts: Facts, *, t: float, screen: RichConsole) -> None:
        self._facts, self._screen = facts, screen
        self._progress, self._memory, self._repeats = Progress.begin(t), Memory(), Repeats()
        self._losses: deque[float] = deque(maxlen=CURVE)
        self._live = Live(console=screen, refresh_per_second=REFRESH_PER_S, get_renderable=self._view, transient=True)
        self._live.start()

    def saw(self, turn: Turn) -> None:
        is_first = self._progress.plan is None
        self._progress = self._progress.after(turn)
        for text in notes_of(turn):
            self.note(text)
        if any(isinstance(command, AssignPlan) for command in turn.decision.commands):
            for text in plan_text(self._progress, facts=self._facts, is_first=is_first):
                self._print(text, style="bold" if is_first else "")
        for record in records_of(turn):
            self._losses.append(record.loss)
            if is_shown(record, facts=self._facts):
                self._print(line_of(record, self._progress, facts=self._facts, memory=self._memory))

    def remember(self, memory: Memory) -> None:
        self._memory = memory

    def tick(self, t: float) -> None:
        """Nothing to do: the view draws itself."""

    def note(self, text: str) -> None:
        worth = self._repeats.worth(text)
        if worth is not None:
            self._print(worth, style="cyan")

    def close(self) -> None:
        self._live.stop()
        for text in ending(self._progress, facts=self._facts, repeats=self._repeats):
            self._print(text)

    def _print(self, text: str, *, style: str = "") -> None:
        self._screen.print(Text(text, style=style), soft_wrap=True)

    def _view(self) -> Group:
        steps, story = self._facts.config.training.steps, self._progress.story
        done = story.committed if story is not None else 0
        head = Table.grid(padding=(0, 2))
        head.add_row(
            Text(self._facts.name, style="bold"),
            state_name(self._progress),
            f"step {done} of {steps}",
            ProgressBar(total=steps, completed=done, width=30),
            self._eta(steps - done),
        )
        return Group(head, Text(self._figures()), Text(curve(self._losses), style="green"))

    def _eta(self, left: int) -> str:
        record = self._progress.last
        if record is None:
            return ""
        seconds = round(left * record.step_s)
        return f"eta {seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def _figures(self) -> str:
        record, validated, spent = self._progress.last, self._progress.validated, self._progress.goodput
        if record is None:
            return self._progress.finish.reason if self._progress.finish is not None else ""
        value = f"validation {validated.val_loss:.4f}   " if validated is not None else ""
        return (
            f"loss {record.loss:.4f}   {value}{record.tokens_per_s:,.0f} tokens/s   goodput {spent.share:.1%}   "
            f"bubble {spent.last_bubble:.1%}   {record.mesh}"
        )


def curve(values: deque[float]) -> str:
    """Numbers as a row of blocks, the largest highest; one that is not finite is a gap."""
    finite = [value for value in values if abs(value) < float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((value - low) * scale)] if abs(value) < float("inf") else " " for value in values)
