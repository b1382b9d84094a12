"""In which order do teams run any set of actions, whatever the routes: trains that never stop on the way.

    tick        0   1   2   3   4   5   6   7   8   9         a train is a micro-batch on its way through the actions
    stage 0 |   F0  .   F1  .   F2  B0  F3  B1  ..            that are left of it: F0 1F0 2F0 2B0 1B0 0B0
    stage 1 |   .   F0  .   F1  B0  F2  B1  F3  ..            it leaves once every team on its way is free just when it
    stage 2 |   .   .   F0  B0  F1  B1  F2  B2  ..            comes by, and has room for its activations

What a team sends at one tick is taken in at the next, so it is the receiver's next action and its receive is posted:
unbuffered sends cannot stand still, for any routes and across replicas. For a whole step on straight routes this is
the 1F1B schedule. Ticks order the actions; nobody waits for a tick.
Every train keeps the beat: forwards of a stage run at each second tick, its backwards in between, so that trains of
different ways leave each other no odd gaps. First go those that only give room, backwards; then by micro-batch, so that
what lost teams had in hand, for which others are full, does not wait until all else has its ticks.
Only where full teams wait for each other, as may be after crossing routes broke, one of them gets more room.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from raymega.pipeline.actions import Action, Kind, Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Timetable:
    """The programs of all teams, and the most activations that each holds at once, or may hold."""

    programs: Mapping[str, Program]
    in_flight: Mapping[str, int]


@dataclass(slots=True, kw_only=True)
class _Track:
    """One team: its action at each tick, and the activations it holds after each; `limit` is the most it may."""

    limit: int
    alive_at_end: int
    actions: dict[int, Action] = field(default_factory=dict)
    alive: list[int] = field(default_factory=list)  # after each tick; from its end on it is `alive_at_end`

    def peak(self, changes: Mapping[int, int]) -> int:
        """The most activations held while `changes` to them, by tick, add to what is held anyway."""
        ticks, more, peak = sorted(changes), 0, 0
        for tick, following in zip(ticks, [*ticks[1:], None], strict=True):
            more += changes[tick]
            alive = max(self.alive[tick:following], default=0)
            if following is None or following > len(self.alive):
                alive = max(alive, self.alive_at_end)
            peak = max(peak, alive + more if more > 0 else 0)
        return peak

    def hold(self, changes: Mapping[int, int]) -> None:
        """Count `changes` to the activations held, by tick."""
        ticks, more = sorted(changes), 0
        self.alive.extend([self.alive_at_end] * (ticks[-1] - len(self.alive)))
        for tick, following in zip(ticks, [*ticks[1:], len(self.alive)], strict=True):
            more += changes[tick]
            if more != 0:
                self.alive[tick:following] = [alive + more for alive in self.alive[tick:following]]
        self.alive_at_end += more


def timetable(
    team_of: Mapping[Action, str],
    *,
    num_stages: int,
    limits: Mapping[str, int],
    held: Mapping[str, int],
    forwards_only: Collection[Action] = (),
) -> Timetable:
    """Order what each team has to run.

    Args:
        team_of: the team of each action; an input that none of them makes is there from the start.
        num_stages: virtual stages.
        limits: the most activations that each team should hold.
        held: how many each team holds to begin with, of forwards whose backwards are among the actions.
        forwards_only: forwards whose activations are not kept.
    """
    tracks = {team: _Track(limit=limit, alive_at_end=held.get(team, 0)) for team, limit in limits.items()}
    yard = _Yard(team_of=team_of, tracks=tracks, forwards_only=frozenset(forwards_only))
    waiting = _trains(team_of, num_stages=num_stages)
    while waiting:
        left = [train for train in waiting if not yard.depart(train)]
        if len(left) == len(waiting):
            yard.make_room(left)
        waiting = left
    programs = {team: _in_order(track) for team, track in tracks.items()}
    return Timetable(programs=programs, in_flight={team: track.limit for team, track in tracks.items()})


def _in_order(track: _Track) -> Program:
    return tuple(track.actions[tick] for tick in sorted(track.actions))


def _trains(team_of: Mapping[Action, str], *, num_stages: int) -> list[Program]:
    """The runs of actions that feed each other, in the order in which they leave."""

    def place(action: Action) -> int:
        return action.stage if action.kind is Kind.F else 2 * num_stages - 1 - action.stage

    by_microbatch = defaultdict[int, list[Action]](list)
    for action in sorted(team_of, key=place):
        by_microbatch[action.microbatch].append(action)
    trains: list[list[Action]] = []
    for actions in by_microbatch.values():
        for action in actions:
            if trains and trains[-1][-1].microbatch == action.microbatch and place(trains[-1][-1]) + 1 == place(action):
                trains[-1].append(action)
            else:
                trains.append([action])

    def turn(train: list[Action]) -> tuple[bool, int, int]:
        """Backwards whose forward is done, those that are furthest on their way first; then by micro-batch."""
        first, first_place = train[0], place(train[0])
        waits = any(
            action.kind is Kind.B and _forward_of(action) in team_of and _forward_of(action) not in train
            for action in train
        )
        gives_room = first.kind is Kind.B and not waits
        return (False, -first_place, first.microbatch) if gives_room else (True, first.microbatch, first_place)

    return [tuple(train) for train in sorted(trains, key=turn)]


class _Yard:
    """The tracks, and when each action runs that has its tick."""

    def __init__(
        self, *, team_of: Mapping[Action, str], tracks: dict[str, _Track], forwards_only: frozenset[Action]
    ) -> None:
        self._team_of, self._tracks, self._forwards_only = team_of, tracks, forwards_only
        self._tick: dict[Action, int] = {}
        self._next_start = defaultdict[tuple[tuple[str, int, Kind], ...], int](int)  # by way; those before it are taken
        self._end = 0

    def depart(self, train: Program) -> bool:
        """Give `train` the first ticks at which it can run through; False if it cannot, however late."""
        if self._lacks_forward(train):
            return False
        way = tuple((self._team_of[action], action.stage, action.kind) for action in train)
        earliest = _on_beat(train, max(self._earliest(train), self._next_start[way]))
        for start in range(earliest, max(earliest, self._end) + 2, 2):
            if self._is_clear(train, start):
                self._run(train, start)
                self._next_start[way] = start + 2
                return True
        return False

    def make_room(self, trains: list[Program]) -> None:
        """Raise limits so far that one of `trains`, all stuck, can depart."""
        train = next(train for train in trains if not self._lacks_forward(train))
        changes = self._changes(train, _on_beat(train, max(self._end, self._earliest(train))))
        for team, ticks in changes.items():
            track = self._tracks[team]
            track.limit = max(track.limit, track.peak(ticks))

    def _earliest(self, train: Program) -> int:
        """The first start with which no backward runs before its forward, if that is in another train."""
        ticks = (self._tick.get(_forward_of(action), -1) - i for i, action in enumerate(train))
        return max(0, *(tick + 1 for tick in ticks))

    def _lacks_forward(self, train: Program) -> bool:
        """Whether a backward waits for a forward that is in another train, which has not departed."""
        forwards = {_forward_of(action) for action in train if action.kind is Kind.B}
        return any(f in self._team_of and f not in self._tick for f in forwards - set(train))

    def _is_clear(self, train: Program, start: int) -> bool:
        if any(tick in self._tracks[self._team_of[action]].actions for tick, action in enumerate(train, start)):
            return False
        changes = self._changes(train, start)
        return all(self._tracks[team].peak(ticks) <= self._tracks[team].limit for team, ticks in changes.items())

    def _changes(self, train: Program, start: int) -> dict[str, dict[int, int]]:
        """What `train` adds to the activations of each team, by tick."""
        changes = defaultdict[str, dict[int, int]](dict)
        for tick, action in enumerate(train, start):
            changes[self._team_of[action]][tick] = self._change(action)
        return changes

    def _change(self, action: Action) -> int:
        if action.kind is Kind.B:
            return -1
        return 0 if action in self._forwards_only else 1

    def _run(self, train: Program, start: int) -> None:
        for team, ticks in self._changes(train, start).items():
            self._tracks[team].hold(ticks)
        for tick, action in enumerate(train, start):
            self._tracks[self._team_of[action]].actions[tick] = action
            self._tick[action] = tick
        self._end = max(self._end, start + len(train))


def _forward_of(action: Action) -> Action:
    return Action(action.stage, Kind.F, action.microbatch)


def _on_beat(train: Program, start: int) -> int:
    """`start`, or the tick after it: a forward of stage s runs at ticks s, s + 2, .., a backward at those between."""
    first = train[0]
    return start + (start - first.stage - (first.kind is Kind.B)) % 2
