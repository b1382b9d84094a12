"""A step that is run action by action in any order, broken, repaired and finished; and what is missing, by trial.

Teams exchange messages through streams, in which what comes first is taken first, as on real wires.
"""

import random
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field

from raymega.pipeline.actions import Action, Kind, Program, sink, source, work_of_step
from raymega.pipeline.catalog import schedule
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.parts import whole
from raymega.pipeline.placing import virtual_stages_on
from raymega.pipeline.repair import Repair, StagesLost, repair
from raymega.pipeline.timeline import even_durations


@dataclass
class Team:
    stages: tuple[int, ...]
    program: Program
    ledger: set[Action] = field(default_factory=set)
    log: set[Action] = field(default_factory=set)
    passes: set[tuple[int, int]] = field(default_factory=set)
    owing: set[tuple[int, int]] = field(default_factory=set)
    gradients: Counter = field(default_factory=Counter)
    losses: set[int] = field(default_factory=set)
    at: int = 0

    @property
    def action(self) -> Action | None:
        return self.program[self.at] if self.at < len(self.program) else None


class Step:
    """dp replicas of pp stages; every number of virtual stages that the schedule takes."""

    def __init__(self, *, dp: int, pp: int, num_microbatches: int, chunks: int = 1, name: str = "1f1b") -> None:
        self.dp, self.pp, self.num_microbatches, self.chunks = dp, pp, num_microbatches, chunks
        self.num_stages, self.row = pp * chunks, schedule(name)
        self.held = [
            virtual_stages_on(stage, num_stages=pp, chunks=chunks, folds=self.row.folds) for stage in range(pp)
        ]
        self.serves = {
            (v, m): f"{m % dp}.{stage}"
            for stage in range(pp)
            for v in self.held[stage]
            for m in range(num_microbatches)
        }
        self.teams = {f"{r}.{s}": self._fresh(r, s) for r in range(dp) for s in range(pp)}
        self.streams: defaultdict[tuple, deque[Action]] = defaultdict(deque)
        self.forwards_only: frozenset[Action] = frozenset()
        self.resends: list = []
        self.runs: Counter[Action] = Counter()
        self.repairs: list[Repair] = []

    def _fresh(self, replica: int, stage: int) -> Team:
        microbatches = tuple(m for m in range(self.num_microbatches) if m % self.dp == replica)
        program = self.row.program(stage=stage, num_stages=self.pp, microbatches=microbatches, chunks=self.chunks)
        return Team(stages=self.held[stage], program=program)

    def advance(self, rng: random.Random, *, most: int | None = None) -> int:
        """Run up to `most` actions, of any teams that can go on; how many were run."""
        count = 0
        while most is None or count < most:
            ready = [name for name in self.teams if self._is_ready(name)]
            if not ready:
                break
            self._run(rng.choice(ready))
            count += 1
        return count

    def run_to(self, action: Action, rng: random.Random) -> None:
        """Go on until `action` is the last that was run."""
        while not self.runs[action]:
            assert self.advance(rng, most=1) == 1

    def run_each(self, counts: dict[str, int]) -> None:
        """Run so many actions of each team's program."""
        while behind := [name for name, count in counts.items() if self.teams[name].at < count]:
            self._run(next(name for name in behind if self._is_ready(name)))

    @property
    def is_done(self) -> bool:
        return all(team.action is None for team in self.teams.values())

    def kill(self, *names: str) -> None:
        for name in names:
            del self.teams[name]

    def reports(self) -> dict[str, TeamReport]:
        return {
            name: TeamReport(stages=team.stages, done=frozenset(team.ledger), logged=frozenset(team.log))
            for name, team in self.teams.items()
        }

    def repair(self, reports: dict[str, TeamReport] | None = None) -> Repair | StagesLost:
        """Wake everyone, plan the rest, and let the living take it up; messages under way are gone."""
        made = repair(
            reports or self.reports(),
            served_by=lambda stage, microbatch: self.serves[stage, microbatch],
            limit=self.limit,
            durations=even_durations(num_stages=self.num_stages, backward_s=2.0),
            num_stages=self.num_stages,
            num_microbatches=self.num_microbatches,
        )
        if isinstance(made, Repair):
            self._take_up(made)
        return made

    def limit(self, team: str, num_microbatches: int) -> int:
        stage = int(team.partition(".")[2])
        return self.row.in_flight(
            stage=stage, num_stages=self.pp, num_microbatches=num_microbatches, chunks=self.chunks
        )

    def _take_up(self, made: Repair) -> None:
        self.streams.clear()
        self.serves |= made.moved
        self.forwards_only, self.resends = made.forwards_only, list(made.resends)
        self.repairs.append(made)
        for name, team in self.teams.items():
            team.program, team.at, team.ledger = made.programs[name], 0, set(made.kept[name])
            team.passes &= {(a.stage, a.microbatch) for a in team.ledger if a.kind is Kind.F}
            if name in made.anew:
                team.gradients.clear()
            assert set(team.gradients) == {(a.stage, a.microbatch) for a in team.ledger if a.kind in (Kind.B, Kind.W)}
            team.owing = {(a.stage, a.microbatch) for a in team.ledger if a.kind is Kind.I} - set(team.gradients)
            team.losses &= {a.microbatch for a in team.ledger if a.kind is Kind.F and a.stage == self.num_stages - 1}
            self._send_again(name, after=None)

    def _send_again(self, name: str, *, after: Action | None) -> None:
        for resend in self.resends:
            if resend.sender == name and resend.after == after:
                assert resend.action in self.teams[name].log
                self.streams[self._stream(resend.action, name, resend.receiver)].append(resend.action)

    @staticmethod
    def _stream(action: Action, sender: str, receiver: str) -> tuple:
        return sender, receiver, action.stage, action.kind

    def _incoming(self, name: str) -> deque[Action] | None:
        """The stream whose head the team's next action takes; None: it needs nothing from outside."""
        made = source(self.teams[name].action, num_stages=self.num_stages)
        if made is None or made.stage == self.teams[name].action.stage or whole(made) in self.teams[name].log:
            return None
        made = whole(made)
        for key, stream in self.streams.items():
            if key[1:] == (name, made.stage, made.kind) and made in stream:
                assert stream[0] == made, f"{name} takes {made}, first in its stream is {stream[0]}"
                return stream
        return deque()

    def _is_ready(self, name: str) -> bool:
        if self.teams[name].action is None:
            return False
        incoming = self._incoming(name)
        return incoming is None or len(incoming) > 0

    def _run(self, name: str) -> None:
        team = self.teams[name]
        action = team.action
        incoming = self._incoming(name)
        if incoming is not None:
            incoming.popleft()
        self.runs[action] += 1
        place = (action.stage, action.microbatch)
        if action.kind is Kind.W:
            team.owing.remove(place)
            team.gradients[place] += 1
        elif action.kind is Kind.I:
            team.passes.remove(place)
            team.owing.add(place)
        elif action.kind is Kind.B:
            team.passes.remove(place)
            team.gradients[place] += 1
        elif action not in self.forwards_only:
            team.passes.add(place)
            if action.stage == self.num_stages - 1:
                team.losses.add(action.microbatch)
        if action not in self.forwards_only:
            assert action not in team.ledger
            team.ledger.add(action)
        self._send(name, action)
        team.at += 1

    def _send(self, name: str, action: Action) -> None:
        taken = sink(action, num_stages=self.num_stages)
        if taken is None or taken.stage == action.stage:
            return
        made = whole(action)
        self.teams[name].log.add(made)
        for receiver, team in self.teams.items():
            if receiver != name and taken in team.program:
                self.streams[self._stream(made, name, receiver)].append(made)
        self._send_again(name, after=made)

    def counted_once(self) -> bool:
        """Every gradient and every loss of the step, once among the living."""
        gradients, losses = Counter(), Counter()
        for team in self.teams.values():
            gradients += team.gradients
            losses += Counter(team.losses)
        places = [(v, m) for v in range(self.num_stages) for m in range(self.num_microbatches)]
        return gradients == Counter(places) and losses == Counter(range(self.num_microbatches))


def missing_by_trial(reports: dict[str, TeamReport], *, num_stages: int, num_microbatches: int) -> set[Action]:
    """An action is missing if the living cannot finish the step without running it."""
    work = work_of_step(num_stages=num_stages, num_microbatches=num_microbatches)
    return {action for action in work if not _finishes(reports, work - {action}, num_stages, num_microbatches)}


def _finishes(reports: dict[str, TeamReport], allowed: frozenset[Action], num_stages: int, count: int) -> bool:
    """Whether running all that can be run of `allowed` counts every backward of the step."""
    sound = [report.done for report in reports.values() if not report.spoiled]
    counted = {action for done in sound for action in done}
    outputs = {action for report in reports.values() for action in report.logged}
    passes, before = set(counted), -1
    while before != len(counted) + len(outputs) + len(passes):
        before = len(counted) + len(outputs) + len(passes)
        for action in allowed:
            made = source(action, num_stages=num_stages)
            has_input = made is None or made in outputs or made.stage == action.stage
            has_pass = action.kind is Kind.F or Action(action.stage, Kind.F, action.microbatch) in passes
            if has_input and has_pass:
                outputs.add(action)
                (passes if action.kind is Kind.F else counted).add(action)
    return {a for a in counted if a.kind is Kind.B} == set(
        work_of_step(num_stages=num_stages, num_microbatches=count, kinds=(Kind.B,))
    )
