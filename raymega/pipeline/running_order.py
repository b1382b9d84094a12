"""In which order can the actions of programs run, whatever they take? Found once, then timed for any durations.

    stage 0 | 0F0 0F1 0B0 0B1        0F0 0F1 1F0 1B0 1F1 1B1 0B0 0B1        each after the last one of its team,
    stage 1 | 1F0 1B0 1F1 1B1                                               and after the one whose output it takes in

    end of an action = max(end of the team's last one, end of its input + message) + its own seconds

So a search that times one schedule with a hundred durations walks its programs once. An input that no program makes is
there from the start.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Action, Kind, Programs

Durations = Mapping[tuple[int, Kind], float]
"""Seconds of (virtual stage, kind)."""
_KINDS = tuple(Kind)
_NOTHING = -1  # the index of a last element, of zero seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocked:
    """Start and end of each action, in the running order."""

    starts: Sequence[float]
    ends: Sequence[float]

    @property
    def total_s(self) -> float:
        return max(self.ends, default=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningOrder:
    """Actions by their index in the order.

    Args:
        num_stages: virtual stages.
        teams: the indices of each team's actions, in its program's order.
        rows: of each action (place, last, source, message): its (virtual stage, kind) as a number, 4 x stage + kind;
            the action before it on its team; the one whose output it takes in; the place whose message brings that,
            none within a team.
    """

    num_stages: int
    teams: Mapping[str, Sequence[int]]
    rows: Sequence[tuple[int, int, int, int]]

    def clocked(self, *, durations: Durations, message_s: float | Durations = 0.0) -> Clocked:
        """Time it. Arguments as for `timeline`; a place that is in neither takes no time."""
        seconds, sent = self._by_place(durations), self._by_place(message_s)
        starts, ends = [0.0] * len(self.rows), [0.0] * (len(self.rows) + 1)
        for at, (place, last, source, message) in enumerate(self.rows):
            ready, free = ends[source] + sent[message], ends[last]
            starts[at] = start = ready if ready > free else free
            ends[at] = start + seconds[place]
        return Clocked(starts=starts, ends=ends[:-1])

    def _by_place(self, seconds: float | Durations) -> list[float]:
        places = [(stage, kind) for stage in range(self.num_stages) for kind in _KINDS]
        if isinstance(seconds, Mapping):
            return [*(seconds.get(place, 0.0) for place in places), 0.0]
        return [*([seconds] * len(places)), 0.0]


def running_order(programs: Programs, *, num_stages: int) -> RunningOrder:
    """Order the actions of `programs`, which `check` has passed. Raises: RaymegaBug if they stand still."""
    walk = _Walk(programs, num_stages=num_stages)
    walk.run()
    return RunningOrder(num_stages=num_stages, teams=walk.teams, rows=walk.rows)


class _Walk:
    """A walk through programs under way: a team runs until an input lacks, and goes on once that is made.

    Actions are numbered: a stage's four kinds follow each other, the next stage's come after them, and the next
    micro-batch's after those. So what an action takes in is always as far from it.
    """

    def __init__(self, programs: Programs, *, num_stages: int) -> None:
        self._programs, self._per_microbatch = programs, 4 * num_stages
        self._numbers = {team: [self._number(action) for action in program] for team, program in programs.items()}
        self._made_by_any = set[int]().union(*self._numbers.values())
        self._away = [_away(place, num_stages=num_stages) for place in range(4 * num_stages)]
        self._index_of: dict[int, int] = {}
        self._team_of: list[str] = []  # by index
        self._waiting: dict[int, list[str]] = {}  # for what, who
        self.teams: dict[str, list[int]] = {team: [] for team in programs}
        self.rows: list[tuple[int, int, int, int]] = []

    def run(self) -> None:
        """Walk all programs to their end. Raises: RaymegaBug if they stand still."""
        ready = deque(self._programs)
        while ready:
            ready.extend(self._advance(ready.popleft()))
        ends = ((team, program, len(self.teams[team])) for team, program in self._programs.items())
        stuck = [f"{team} at {program[done]}" for team, program, done in ends if done < len(program)]
        if stuck:
            raise RaymegaBug(f"These programs stand still: {', '.join(stuck)}. Pass them through check first.")

    def _advance(self, team: str) -> list[str]:
        """Run `team` as far as its inputs are there. Returns: who waited for what it made."""
        mine, numbers, rows = self.teams[team], self._numbers[team], self.rows
        index_of, team_of, waiting, woken = self._index_of, self._team_of, self._waiting, list[str]()
        last = mine[-1] if mine else _NOTHING
        for turn in range(len(mine), len(numbers)):
            number = numbers[turn]
            place = number % self._per_microbatch
            made = number + self._away[place]
            source, message = index_of.get(made, _NOTHING), _NOTHING
            if source != _NOTHING:
                message = _NOTHING if team_of[source] == team else made % self._per_microbatch
            elif made != number and made in self._made_by_any:
                waiting.setdefault(made, []).append(team)
                break
            index_of[number] = at = len(rows)
            rows.append((place, last, source, message))
            team_of.append(team)
            mine.append(at)
            last = at
            if number in waiting:
                woken += waiting.pop(number)
        return woken

    def _number(self, action: Action) -> int:
        return self._per_microbatch * action.microbatch + 4 * action.stage + _KINDS.index(action.kind)


def _away(place: int, *, num_stages: int) -> int:
    """How far from an action of `place` the number of the one is whose output it takes in; 0: it reads the batch."""
    stage, kind = divmod(place, 4)
    if kind == 0:
        return -4 if stage > 0 else 0
    if kind == 3:
        return -1  # the weights' part needs the input's
    return 4 if stage < num_stages - 1 else -kind
