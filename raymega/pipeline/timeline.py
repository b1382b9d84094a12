"""When does each action run? A simulation of programs in virtual time: bubble, activations alive, the grid.

    stage 0 | F0 F1       B0---    B1---
    stage 1 |    F0 B0--- F1 B1---

A cell is one tick, the shortest action; a longer one is drawn through: here a backward takes two.

An action starts when its team is free and its input has come; sends and receives do not take the team's time, as in
an executor that posts receives early and sends in the background.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Action, Kind, Programs, alive_after

Durations = Mapping[tuple[int, Kind], float]
"""Seconds of (virtual stage, kind)."""
_KINDS = tuple(Kind)


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
            everywhere, or by the (virtual stage, kind) that sends.
    Raises:
        RaymegaBug: the programs stand still.
    """
    clock = _Clock(programs=programs, durations=durations, num_stages=num_stages, message_s=message_s)
    clock.run()
    return Timeline(spans={team: clock.spans(team) for team in programs})


def finish_s(programs: Programs, *, durations: Durations, num_stages: int, message_s: float | Durations = 0.0) -> float:
    """When `programs` end: `timeline(..).total_s`, without the spans."""
    clock = _Clock(programs=programs, durations=durations, num_stages=num_stages, message_s=message_s)
    clock.run()
    return clock.total_s


def even_durations(*, num_stages: int, forward_s: float = 1.0, backward_s: float = 1.0) -> Durations:
    """The same seconds at every virtual stage; a part of a backward takes half of it."""
    seconds = {Kind.F: forward_s, Kind.B: backward_s, Kind.I: backward_s / 2, Kind.W: backward_s / 2}
    return {(stage, kind): seconds[kind] for stage in range(num_stages) for kind in Kind}


class _Clock:
    """A run under way. An input that no program makes is there from the start.

    Actions are numbered, so that a step of thousands of stages and micro-batches is timed in seconds: a stage's four
    kinds follow each other, the next stage's come after them, and the next micro-batch's after those.
    """

    def __init__(
        self, *, programs: Programs, durations: Durations, num_stages: int, message_s: float | Durations
    ) -> None:
        self._programs = programs
        self._num_stages = num_stages
        places = [(stage, kind) for stage in range(num_stages) for kind in _KINDS]
        self._seconds = [durations.get(place, 0.0) for place in places]  # by number, modulo a micro-batch's
        sent = message_s if isinstance(message_s, Mapping) else {}
        every = 0.0 if isinstance(message_s, Mapping) else message_s
        self._sent = [sent.get(place, every) for place in places]
        self._numbers = {team: [self._number(action) for action in program] for team, program in programs.items()}
        self._team_of = dict[int, str]()
        for team, numbers in self._numbers.items():
            self._team_of.update(dict.fromkeys(numbers, team))
        self._ends: dict[int, float] = {}
        self._starts: dict[str, list[float]] = {team: [] for team in programs}

    def spans(self, team: str) -> tuple[Span, ...]:
        """What `team` has run."""
        rows = zip(self._programs[team], self._starts[team], self._numbers[team], strict=True)
        return tuple(Span(action=action, start_s=start, end_s=self._ends[number]) for action, start, number in rows)

    @property
    def total_s(self) -> float:
        return max(self._ends.values(), default=0.0)

    def run(self) -> None:
        """Run all programs to their end. Raises: RaymegaBug if they stand still."""
        teams = [team for team, program in self._programs.items() if program]
        while any([self.advance(team) for team in teams]):
            pass
        stuck = [f"{team} at {self.next_action(team)}" for team in teams if self.next_action(team)]
        if stuck:
            raise RaymegaBug(f"These programs stand still: {', '.join(stuck)}. Pass them through check first.")

    def next_action(self, team: str) -> Action | None:
        done = len(self._starts[team])
        return self._programs[team][done] if done < len(self._programs[team]) else None

    def advance(self, team: str) -> bool:
        """Run `team` as far as its inputs are known; True if it ran anything."""
        starts, numbers = self._starts[team], self._numbers[team]
        before, ends, per_microbatch = len(starts), self._ends, len(self._seconds)
        free = ends[numbers[before - 1]] if before else 0.0
        for number in numbers[before:]:
            ready = self._input_s(number, team)
            if ready is None:
                break
            start = ready if ready > free else free
            free = ends[number] = start + self._seconds[number % per_microbatch]
            starts.append(start)
        return len(starts) > before

    def _number(self, action: Action) -> int:
        return 4 * (action.microbatch * self._num_stages + action.stage) + _KINDS.index(action.kind)

    def _input_s(self, number: int, team: str) -> float | None:
        """When the input of action `number` is with `team`; None if that is not known yet."""
        stage, kind = number // 4 % self._num_stages, number % 4
        if kind == 0:
            made = number - 4 if stage > 0 else -1
        elif kind == 3:
            made = number - 1  # the weights' part needs the input's
        else:
            made = number + 4 if stage < self._num_stages - 1 else number - kind
        sender = self._team_of.get(made)
        if sender is None:
            return 0.0
        end = self._ends.get(made)
        return end if end is None or sender == team else end + self._sent[made % len(self._sent)]


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
