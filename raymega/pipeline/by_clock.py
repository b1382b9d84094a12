"""In which order do teams run any set of actions, by what each pass takes? As it comes, forwards first.

    0.0 | F0--- F2---       B0--------- F4--- B2---------       B4---------         stage 0 has two teams, stage 1 one
    1.0 | F1--- F3---                B1--------- F5--- B3---------    B5---------
    0.1 |       F0 F1 B0--- F2 B1--- F3 B2--- F4 B3--- F5 B4--- B5---                  of half as many blocks

A team that is free takes what it may and what has waited for longest: a forward while it has room for its activation,
so that those after it have work; else a backward, which makes room.

Trains (`pipeline.trains`) are of equal ticks; where stages hold different layers, or have different numbers of teams,
their gaps are what such a step loses. What comes as it comes loses less, but makes no promise: teams may stand still
with unbuffered sends, or each full for the others. So who asks checks it, and has trains to fall back on.

A stage with fewer teams behind one with more is sent more than it takes in, and with unbuffered sends each would wait
for the other to take its message in. So nobody runs further ahead than the next stage has room, and one more.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush

from raymega.pipeline.actions import Action, Kind, Programs, source
from raymega.pipeline.running_order import Durations

_Waiting = tuple[float, int, int, Action]  # since when, micro-batch, stage


@dataclass(slots=True, kw_only=True)
class _Team:
    """What a team has run, and what it may run next, of each kind that which has waited for longest first."""

    limit: int
    alive: int
    program: list[Action] = field(default_factory=list)
    forwards: list[_Waiting] = field(default_factory=list)
    backwards: list[_Waiting] = field(default_factory=list)
    is_free: bool = True

    def wait(self, action: Action, *, now: float) -> None:
        heappush(self.forwards if action.kind is Kind.F else self.backwards, _waiting(action, now))

    def next(self, forwards_only: Collection[Action]) -> Action | None:
        """Take the next one, if there is any; it is free until then."""
        has_room = self.alive < self.limit or (bool(self.forwards) and self.forwards[0][-1] in forwards_only)
        waiting = self.forwards if self.forwards and has_room else self.backwards
        if not self.is_free or not waiting:
            return None
        action = heappop(waiting)[-1]
        self.alive += _change(action, forwards_only)
        self.program.append(action)
        self.is_free = False
        return action


def by_clock(
    team_of: Mapping[Action, str],
    *,
    durations: Durations,
    num_stages: int,
    limits: Mapping[str, int],
    held: Mapping[str, int],
    forwards_only: Collection[Action] = (),
) -> Programs | None:
    """Order what each team has to run; None where all come to wait for room. Arguments as for `trains.timetable`.

    The same arguments give the same order, in whatever order their mappings are.
    """
    ahead = _ahead(team_of, limits=limits, num_stages=num_stages)
    clock = _Clock(
        team_of=team_of,
        teams={team: _Team(limit=max(ahead[team], held.get(team, 0)), alive=held.get(team, 0)) for team in limits},
        durations=durations,
        forwards_only=frozenset(forwards_only),
    )
    clock.run(num_stages=num_stages)
    programs = {team: tuple(of.program) for team, of in clock.teams.items()}
    return programs if sum(map(len, programs.values())) == len(team_of) else None


@dataclass(slots=True, kw_only=True)
class _Clock:
    """Who ends what when; `lacks`: inputs that an action waits for, `feeds`: who waits for an action."""

    team_of: Mapping[Action, str]
    teams: Mapping[str, _Team]
    durations: Durations
    forwards_only: frozenset[Action]
    lacks: dict[Action, int] = field(default_factory=dict)
    feeds: dict[Action, list[Action]] = field(default_factory=lambda: defaultdict(list))
    ends: list[_Waiting] = field(default_factory=list)

    def run(self, *, num_stages: int) -> None:
        for action, team in self.team_of.items():
            inputs = [made for made in _inputs(action, num_stages=num_stages) if made in self.team_of]
            self.lacks[action] = len(inputs)
            for made in inputs:
                self.feeds[made].append(action)
            if not inputs:
                self.teams[team].wait(action, now=0.0)
        self._start(self.teams, now=0.0)
        while self.ends:
            now = self.ends[0][0]
            touched = dict[str, None]()
            while self.ends and self.ends[0][0] == now:
                touched |= dict.fromkeys(self._end(heappop(self.ends)[-1], now=now))
            self._start(touched, now=now)

    def _end(self, action: Action, *, now: float) -> Iterator[str]:
        """Teams that may have something to do since `action` has ended."""
        own = self.team_of[action]
        self.teams[own].is_free = True
        yield own
        for fed in self.feeds[action]:
            self.lacks[fed] -= 1
            if not self.lacks[fed]:
                self.teams[self.team_of[fed]].wait(fed, now=now)
                yield self.team_of[fed]

    def _start(self, teams: Collection[str], *, now: float) -> None:
        for team in teams:
            action = self.teams[team].next(self.forwards_only)
            if action is not None:
                heappush(self.ends, _waiting(action, now + self.durations[action.stage, action.kind]))


def _ahead(team_of: Mapping[Action, str], *, limits: Mapping[str, int], num_stages: int) -> dict[str, int]:
    """The most activations of each team: as limited, and what the next stage has room for, shared out, and one."""
    teams_at: list[set[str]] = [set() for _ in range(num_stages)]
    for action, team in team_of.items():
        teams_at[action.stage].add(team)
    stages = Counter(team for teams in teams_at for team in teams)
    ahead = dict(limits)
    for v in reversed(range(num_stages - 1)):
        room, here = sum(ahead[team] for team in teams_at[v + 1]), len(teams_at[v])
        for team in teams_at[v]:
            if room and stages[team] == 1:
                ahead[team] = min(limits[team], -(-room // here) + 1)
    return ahead


def _inputs(action: Action, *, num_stages: int) -> Iterator[Action]:
    """What has to be run before: who makes its input and, of a backward, its forward."""
    made = source(action, num_stages=num_stages)
    if made is not None:
        yield made
    forward = Action(action.stage, Kind.F, action.microbatch)
    if action.kind is Kind.B and made != forward:
        yield forward


def _change(action: Action, forwards_only: Collection[Action]) -> int:
    if action.kind is Kind.B:
        return -1
    return 0 if action in forwards_only else 1


def _waiting(action: Action, t: float) -> _Waiting:
    return t, action.microbatch, action.stage, action
