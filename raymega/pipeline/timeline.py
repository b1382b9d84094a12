"""When does each action run? A simulation of programs in virtual time: bubble, activations alive, the grid.

    stage 0 | F0 F1       B0---    B1---
    stage 1 |    F0 B0--- F1 B1---

A cell is one tick, the shortest action; a longer one is drawn through: here a backward takes two.

An action starts when its team is free and its input has come; sends and receives do not take the team's time, as in
an executor that posts receives early and sends in the background.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raymega.pipeline.actions import Action, Kind, Programs, alive_after
from raymega.pipeline.running_order import Durations, running_order


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One action on the clock, from the start of the step."""

    action: Action
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """The spans of each team, by name, in its program's order."""

    spans: Mapping[str, tuple[Span, ...]]

    @property
    def total_s(self) -> float:
        """From the first start to the last end, of all teams."""
        return max((row[-1].end_s for row in self.spans.values() if row), default=0.0)

    @property
    def longest_span_s(self) -> float:
        """From the first start to the last end of the team for which that is longest."""
        return max((row[-1].end_s - row[0].start_s for row in self.spans.values() if row), default=0.0)

    def busy_s(self, team: str) -> float:
        return sum(span.end_s - span.start_s for span in self.spans[team])

    def bubble_share(self, team: str | None = None) -> float:
        """The share of the step in which `team` (or the average team) has nothing to run."""
        teams = list(self.spans) if team is None else [team]
        if self.total_s == 0:
            return 0.0
        return 1 - sum(map(self.busy_s, teams)) / (self.total_s * len(teams))

    def peak_alive(self, team: str) -> int:
        """The most activations the team holds at once."""
        return max(alive_after(tuple(span.action for span in self.spans[team])), default=0)

    def draw(self, *, tick_s: float | None = None) -> str:
        """The grid: a row a team, a cell a tick.

        Args:
            tick_s: seconds of a cell; default: the shortest action. Times are rounded to it.
        """
        spans = [span for row in self.spans.values() for span in row]
        if not spans:
            return "\n".join(f"{team} |" for team in self.spans)
        tick = tick_s or min(span.end_s - span.start_s for span in spans)
        label = _label(self.spans)
        width = 1 + max(len(label(span.action)) for span in spans)
        head = max(map(len, self.spans))
        rows = ((team, _row(row, tick_s=tick, label=label, width=width)) for team, row in self.spans.items())
        return "\n".join(f"{team:<{head}} | {cells}".rstrip() for team, cells in rows)


def timeline(
    programs: Programs, *, durations: Durations, num_stages: int, message_s: float | Durations = 0.0
) -> Timeline:
    """Run `programs`, which `check` has passed.

    Args:
        durations: of every virtual stage and kind that occurs.
        num_stages: virtual stages.
        message_s: from the end of an action to the start of one on another team that takes its output in; the same
            everywhere, or by the (virtual stage, kind) that sends. Less than 0: it leaves before its action ends.
    Raises:
        RaymegaBug: the programs stand still.
    """
    order = running_order(programs, num_stages=num_stages)
    clocked = order.clocked(durations=durations, message_s=message_s)

    def spans(team: str) -> tuple[Span, ...]:
        rows = zip(programs[team], order.teams[team], strict=True)
        return tuple(Span(action=a, start_s=clocked.starts[at], end_s=clocked.ends[at]) for a, at in rows)

    return Timeline(spans={team: spans(team) for team in programs})


def finish_s(programs: Programs, *, durations: Durations, num_stages: int, message_s: float | Durations = 0.0) -> float:
    """When `programs` end: `timeline(..).total_s`, without the spans."""
    order = running_order(programs, num_stages=num_stages)
    return order.clocked(durations=durations, message_s=message_s).total_s


def even_durations(*, num_stages: int, forward_s: float = 1.0, backward_s: float = 1.0) -> Durations:
    """The same seconds at every virtual stage; a part of a backward takes half of it."""
    seconds = {Kind.F: forward_s, Kind.B: backward_s, Kind.I: backward_s / 2, Kind.W: backward_s / 2}
    return {(stage, kind): seconds[kind] for stage in range(num_stages) for kind in Kind}


def _label(spans: Mapping[str, tuple[Span, ...]]) -> Callable[[Action], str]:
    """`F0` where a row is one stage, `2F0` where it is several."""
    if all(len({span.action.stage for span in row}) <= 1 for row in spans.values()):
        return lambda action: f"{action.kind}{action.microbatch}"
    return str


def _row(row: tuple[Span, ...], *, tick_s: float, label: Callable[[Action], str], width: int) -> str:
    """The cells of one team; `B0---` for an action of two ticks."""
    cells = ""
    for span in row:
        first = round(span.start_s / tick_s)
        ticks = max(1, round(span.end_s / tick_s) - first)
        fill = "-" if ticks > 1 else " "
        cells = cells.ljust(first * width) + label(span.action).ljust(ticks * width - 1, fill) + " "
    return cells
