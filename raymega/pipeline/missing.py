"""What of a broken step is missing: every backward that no living team has counted, and what those need.

    living ledgers   2B0 2F0 1F0 0F0 ..        stage 1 of replica 0 is gone, its gradients with it
    missing          1F0 1B0                   1F0 takes 0F0 from its sender's log, 1B0 takes 2B0 likewise
                     0B0                       was never done

An input that no living log holds makes its producer's forward missing too, and so on towards the first stage; where the
producer's gradient counts already it is a forward only: no second backward, no second loss. A gradient that counts but
is held by nobody cannot be made again alone, so the team that counted it starts the step anew.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Action, Kind, source, work_of_step


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamReport:
    """What a living team says of the step.

    Args:
        stages: the virtual stages it holds. Teams that hold the same can do each other's work.
        done: its ledger of the step, of all generations. It has the activations of a forward without its backward.
        logged: the actions whose output its boundary log holds.
        spoiled: its accumulators hold something else than the backwards in `done`, so none of these count.
    """

    stages: tuple[int, ...]
    done: frozenset[Action] = frozenset()
    logged: frozenset[Action] = frozenset()
    spoiled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """What is left to do, and what is not done again.

    Args:
        actions: all that has to be run before the step can be reduced.
        forwards_only: those of them that just feed a later stage: their gradient counts already.
        kept: what stays of each team's ledger.
        anew: teams of whose ledger nothing stays; they clear their accumulators.
    """

    actions: frozenset[Action]
    forwards_only: frozenset[Action]
    kept: Mapping[str, frozenset[Action]]
    anew: frozenset[str]


def team_report(members: Iterable[TeamReport]) -> TeamReport:
    """The report of a team from those of its shards, all alive: what one shard lacks the team lacks.

    Shards that finished different actions hold gradients that do not belong together: the team is spoiled.
    """
    reports = list(members)
    return TeamReport(
        stages=reports[0].stages,
        done=frozenset.intersection(*(report.done for report in reports)),
        logged=frozenset.intersection(*(report.logged for report in reports)),
        spoiled=any(report.spoiled or report.done != reports[0].done for report in reports),
    )


def missing_work(reports: Mapping[str, TeamReport], *, num_stages: int, num_microbatches: int) -> Missing:
    """What the living teams have to run.

    Args:
        reports: of every living team, by name.
        num_stages: virtual stages.
    Raises:
        RaymegaBug: two living teams have counted the same work.
    """
    backwards = work_of_step(num_stages=num_stages, num_microbatches=num_microbatches, kinds=(Kind.B,))
    logged = frozenset[Action]().union(*(report.logged for report in reports.values()))
    anew = {name for name, report in reports.items() if report.spoiled}
    while True:
        ledgers = {name: frozenset() if name in anew else report.done for name, report in reports.items()}
        team_of = _counted(ledgers)
        needed = _needed(backwards - team_of.keys(), done=team_of, logged=logged, num_stages=num_stages)
        stranded = {team_of[action] for action in _gradients_held_by_nobody(needed, team_of, logged, num_stages)}
        if not stranded:
            return _missing(needed, ledgers, done=team_of, anew=frozenset(anew))
        anew |= stranded


def _counted(ledgers: Mapping[str, frozenset[Action]]) -> dict[Action, str]:
    """The team of each fact."""
    team_of: dict[Action, str] = {}
    for name, done in ledgers.items():
        for action in done:
            if action in team_of:
                raise RaymegaBug(f"{action} stands in the ledgers of {team_of[action]} and of {name}, both alive.")
            team_of[action] = name
    return team_of


def _needed(
    backwards: Iterable[Action], *, done: Collection[Action], logged: Collection[Action], num_stages: int
) -> frozenset[Action]:
    """`backwards` and the forwards without which they cannot be run."""
    found, ahead = set[Action](), list(backwards)
    while ahead:
        action = ahead.pop()
        if action in found:
            continue
        found.add(action)
        made = source(action, num_stages=num_stages)
        if action.kind is Kind.B and (forward := _forward_of(action)) not in done:
            ahead.append(forward)
        if action.kind is Kind.F and made is not None and made not in logged:
            ahead.append(made)
    return frozenset(found)


def _gradients_held_by_nobody(
    needed: Collection[Action], done: Collection[Action], logged: Collection[Action], num_stages: int
) -> Iterator[Action]:
    for action in needed:
        made = source(action, num_stages=num_stages)
        if made is not None and made.kind is Kind.B and made in done and made not in logged:
            yield made


def _missing(
    needed: frozenset[Action],
    ledgers: Mapping[str, frozenset[Action]],
    *,
    done: Collection[Action],
    anew: frozenset[str],
) -> Missing:
    again = {action for action in needed if action.kind is Kind.F}
    forwards_only = frozenset(action for action in again if Action(action.stage, Kind.B, action.microbatch) in done)
    dropped = again - forwards_only
    return Missing(
        actions=needed,
        forwards_only=forwards_only,
        kept={name: facts - dropped for name, facts in ledgers.items()},
        anew=anew,
    )


def _forward_of(backward: Action) -> Action:
    return Action(backward.stage, Kind.F, backward.microbatch)
