"""Do programs run to their end when every send blocks until its receive is posted? If not: who waits for whom.

    stage 0 | 0F0 0F1 0B0 ..      sends 0F1, stage 1 has not posted it
                   |   ^          \\___ a cycle: nobody in it can ever go on
                   v   |          /
    stage 1 | 1F0 1B0 1F1 ..      sends 1B0, stage 0 has not posted it

Unbuffered sends are the hardest case: programs that pass run with any buffering and with sends in the background.
With receives posted one action ahead of the computation 1F1B passes; without, it stands as drawn above.
"""

from dataclasses import dataclass

from raymega.pipeline.actions import Action, Program, Programs, sink, source


@dataclass(slots=True, kw_only=True)
class _Team:
    """Where a team stands: at its action `at`, waiting for its input or, once `computed`, to be rid of its output."""

    name: str
    program: Program
    at: int = 0
    computed: bool = False

    @property
    def action(self) -> Action:
        return self.program[self.at]

    @property
    def is_done(self) -> bool:
        return self.at == len(self.program)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wait:
    """`team` cannot go on before `on` does."""

    team: str
    on: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """All teams, and where each action stands. An input whose source is in no program comes from a log: no wait."""

    teams: dict[str, _Team]
    place: dict[Action, tuple[_Team, int]]
    num_stages: int
    receives_ahead: int | None

    def advance(self, team: _Team) -> bool:
        """Let `team` go on as far as it can; True if it moved."""
        before = (team.at, team.computed)
        while not team.is_done and self.wait(team) is None:
            team.at += team.computed
            team.computed = not team.computed
        return before != (team.at, team.computed)

    def wait(self, team: _Team) -> _Wait | None:
        """What holds `team` up, if anything does."""
        return self._wait_to_send(team) if team.computed else self._wait_for_input(team)

    def _wait_for_input(self, team: _Team) -> _Wait | None:
        needed = source(team.action, num_stages=self.num_stages)
        if needed is None or needed not in self.place:
            return None
        sender, index = self.place[needed]
        if sender.at > index:
            return None
        if sender is team:
            return _Wait(team=team.name, on=team.name, why=f"{team.name} needs its own {needed} before {team.action}")
        # A send that only waits for this receive is met by it; `_wait_to_send` says whether it is posted.
        if sender.at == index and sender.computed:
            return None
        return _Wait(team=team.name, on=sender.name, why=f"{team.name} waits for {needed} of {sender.name}")

    def _wait_to_send(self, team: _Team) -> _Wait | None:
        fed = sink(team.action, num_stages=self.num_stages)
        if fed is None or fed not in self.place:
            return None
        receiver, index = self.place[fed]
        if receiver is team or self.receives_ahead is None or index <= receiver.at + self.receives_ahead:
            return None
        why = f"{team.name} sends {team.action} to {receiver.name}, which is at {receiver.action} and has not posted it"
        return _Wait(team=team.name, on=receiver.name, why=why)


def wait_cycle(programs: Programs, *, num_stages: int, receives_ahead: int | None = 1) -> tuple[str, ...] | None:
    """Run `programs` with unbuffered sends; if they stand still, return the waits that form the circle.

    Args:
        num_stages: virtual stages.
        receives_ahead: how many actions ahead of the one at hand a team has posted its receives; 0: only once it
            has nothing else to do; None: all receives from the start.
    """
    teams = {name: _Team(name=name, program=program) for name, program in programs.items()}
    place = {action: (team, index) for team in teams.values() for index, action in enumerate(team.program)}
    run = _Run(teams=teams, place=place, num_stages=num_stages, receives_ahead=receives_ahead)
    while any([run.advance(team) for team in teams.values()]):
        pass
    return _circle(run)


def _circle(run: _Run) -> tuple[str, ...] | None:
    """Follow the waits from any team that is stuck until one comes round again. A finished team holds nobody up."""
    waits = {name: wait for name, team in run.teams.items() if not team.is_done and (wait := run.wait(team))}
    if not waits:
        return None
    path = [next(iter(waits.values()))]
    while (following := waits[path[-1].on]) not in path:
        path.append(following)
    return tuple(wait.why for wait in path[path.index(following) :])
