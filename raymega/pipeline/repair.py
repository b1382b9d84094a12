"""What a broken step still needs: programs for exactly what is missing, and who sends which message once more.

    dp=2, three stages; replica 0 stage 1 dies in mid-step            * not done when the others were woken

      replica 0 stage 0   0F0 0F2 0B0*0B2*    ->   0B0 0B2
      replica 0 stage 1   lost
      replica 0 stage 2   2F0 2B0 2F2*2B2*    ->   2F2 2B2
      replica 1 stage 1   1F1 1B1             ->   1F0 1B0 1F2 1B2       0F0, 0F2 and 2B0 are sent again from logs

A step that is repaired and breaks again is repaired likewise: ledgers and logs are those of the step, whatever the
generation. No team is asked to undo anything, and nothing is run that some living team has counted.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from raymega.pipeline.actions import WHOLE, Action, Kind, Program, source
from raymega.pipeline.best_order import best_order
from raymega.pipeline.missing import Missing, TeamReport, missing_work
from raymega.pipeline.parts import joined, owed, whole
from raymega.pipeline.running_order import Durations
from raymega.pipeline.trains import Timetable

ServedBy = Callable[[int, int], str]
"""(virtual stage, micro-batch) -> the team that serves it by the plan in force; it may be lost."""

Limit = Callable[[str, int], int]
"""(team, micro-batches that it has to run) -> the most activations that it may hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resend:
    """A message that `sender` holds in its log and sends to `receiver`, stamped with the new generation.

    `after`: the sender's own action whose message goes first, since the receiver takes it first; None: at once.
    """

    action: Action
    sender: str
    receiver: str
    after: Action | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """How living teams finish the step.

    Args:
        programs: of every living team, possibly empty.
        kept: what stays of its ledger, with the gradients, losses and activations that belong to it; no others do.
        anew: the teams that clear their accumulators.
        moved: (virtual stage, micro-batch) -> the team that serves it now, where it is another than before.
        forwards_only: they are logged and sent, but keep no activation, count no loss and are no ledger fact.
        resends: in the order in which each sender sends them.
        in_flight: the most activations of each team; above the schedule's bound only where teams stood still otherwise.
    """

    programs: Mapping[str, Program]
    kept: Mapping[str, frozenset[Action]]
    anew: frozenset[str]
    moved: Mapping[tuple[int, int], str]
    forwards_only: frozenset[Action]
    resends: tuple[Resend, ...]
    in_flight: Mapping[str, int]
    reason: str

    @property
    def missing(self) -> frozenset[Action]:
        """All that is run."""
        return frozenset(action for program in self.programs.values() for action in program)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagesLost:
    """No living team holds `stages` (virtual), so their state has to come from elsewhere before the step goes on."""

    stages: tuple[int, ...]
    reason: str


def repair(
    reports: Mapping[str, TeamReport], *, served_by: ServedBy, limit: Limit, durations: Durations, num_stages: int,
    num_microbatches: int,
) -> Repair | StagesLost:  # fmt: skip
    """Plan the rest of a step that broke.

    A team goes on with its own micro-batches; those of lost and spoiled teams are spread evenly over the living teams
    that hold the same stages. Fresh teams that have been given the state of the last commit take part like any other.
    Backwards are run whole, but for what a team owes of those that it has begun in two parts.

    Args:
        reports: of every living team, by name.
        durations: of whole passes, in any unit: what the order is good for.
        num_stages: virtual stages.
    """
    found = _in_whole(
        {team: joined(report) for team, report in reports.items()},
        served_by=served_by,
        limit=limit,
        durations=durations,
        num_stages=num_stages,
        num_microbatches=num_microbatches,
    )
    return found if isinstance(found, StagesLost) else _with_owed(found, reports)


def _with_owed(found: Repair, reports: Mapping[str, TeamReport]) -> Repair:
    """The repair of whole backwards, as it is for ledgers that have some in two parts."""
    left = {team: () if team in found.anew else owed(report.done) for team, report in reports.items()}
    count = sum(map(len, left.values()))
    return replace(
        found,
        programs={team: (*left[team], *program) for team, program in found.programs.items()},
        kept={
            team: frozenset(action for action in report.done if whole(action) in found.kept[team])
            for team, report in reports.items()
        },
        reason=f"{found.reason}; {_count(count, 'weight part')} first" if count else found.reason,
    )


def _in_whole(
    reports: Mapping[str, TeamReport], *, served_by: ServedBy, limit: Limit, durations: Durations, num_stages: int,
    num_microbatches: int,
) -> Repair | StagesLost:  # fmt: skip
    held = {stage for report in reports.values() for stage in report.stages}
    lost = tuple(stage for stage in range(num_stages) if stage not in held)
    if lost:
        stages = ", ".join(map(str, lost))
        return StagesLost(stages=lost, reason=f"no living team holds stage {stages}; its state comes from elsewhere")
    missing = missing_work(reports, num_stages=num_stages, num_microbatches=num_microbatches)
    served = _spread(missing, reports, served_by=served_by, num_microbatches=num_microbatches)
    team_of = {action: served[action.stage, action.microbatch] for action in missing.actions}
    ordered = _ordered(team_of, missing, reports, limit=limit, durations=durations, num_stages=num_stages)
    resends = _resends(ordered.programs, reports, served=served, num_stages=num_stages)
    moved = {place: team for place, team in sorted(served.items()) if team != served_by(*place)}
    return Repair(
        programs=ordered.programs,
        kept=missing.kept,
        anew=missing.anew,
        moved=moved,
        forwards_only=missing.forwards_only,
        resends=resends,
        in_flight=ordered.in_flight,
        reason=_reason(missing, reports, moved=moved, num_resends=len(resends), served_by=served_by),
    )


def _spread(
    missing: Missing, reports: Mapping[str, TeamReport], *, served_by: ServedBy, num_microbatches: int
) -> dict[tuple[int, int], str]:
    """Who serves each (virtual stage, micro-batch): who has part of it, else whose it was, else who has least to do."""
    serves: dict[tuple[int, int], str] = {}
    load = dict.fromkeys(reports, 0)
    free: list[tuple[tuple[int, ...], int]] = []

    def give(stages: tuple[int, ...], microbatch: int, team: str) -> None:
        serves.update({(stage, microbatch): team for stage in stages})
        load[team] += sum(Action(stage, kind, microbatch) in missing.actions for stage in stages for kind in WHOLE)

    pinned = {(action.stage, action.microbatch): team for team, facts in missing.kept.items() for action in facts}
    for stages in sorted({report.stages for report in reports.values()}):
        for microbatch in range(num_microbatches):
            own = served_by(stages[0], microbatch)
            holder = next((pinned[stage, microbatch] for stage in stages if (stage, microbatch) in pinned), None)
            if holder is not None:
                give(stages, microbatch, holder)
            elif own in reports and own not in missing.anew:
                give(stages, microbatch, own)
            else:
                free.append((stages, microbatch))
    for stages, microbatch in free:
        peers = [team for team, report in reports.items() if report.stages == stages]
        give(stages, microbatch, min(peers, key=load.__getitem__))
    return serves


def _ordered(
    team_of: Mapping[Action, str],
    missing: Missing,
    reports: Mapping[str, TeamReport],
    *,
    limit: Limit,
    durations: Durations,
    num_stages: int,
) -> Timetable:
    """Programs that have passed the same check as schedules."""
    held = {team: sum(1 if action.kind is Kind.F else -1 for action in facts) for team, facts in missing.kept.items()}
    microbatches: dict[str, set[int]] = {team: set() for team in reports}
    for team, actions in [*missing.kept.items(), *((team, [action]) for action, team in team_of.items())]:
        microbatches[team].update(action.microbatch for action in actions)
    limits = {team: max(held[team], limit(team, len(some))) for team, some in microbatches.items()}
    return best_order(
        team_of, durations=durations, num_stages=num_stages, limits=limits, held=held,
        forwards_only=missing.forwards_only,
    )  # fmt: skip


def _resends(
    programs: Mapping[str, Program],
    reports: Mapping[str, TeamReport],
    *,
    served: Mapping[tuple[int, int], str],
    num_stages: int,
) -> tuple[Resend, ...]:
    """What no program makes, from who holds it; in each stream in the order in which the receiver takes it."""
    made_by = {action: team for team, program in programs.items() for action in program}
    return tuple(
        resend
        for receiver, program in programs.items()
        for resend in _resends_to(receiver, program, reports, made_by=made_by, served=served, num_stages=num_stages)
    )


def _resends_to(
    receiver: str,
    program: Program,
    reports: Mapping[str, TeamReport],
    *,
    made_by: Mapping[Action, str],
    served: Mapping[tuple[int, int], str],
    num_stages: int,
) -> Iterator[Resend]:
    newest: dict[tuple[str, int, Kind], Action] = {}
    for action in program:
        made = source(action, num_stages=num_stages)
        if made is None or made.stage == action.stage:
            continue
        if made in made_by:
            newest[made_by[made], made.stage, made.kind] = made
            continue
        sender = _holder(made, reports, prefer=served[made.stage, made.microbatch])
        if sender != receiver:
            after = newest.get((sender, made.stage, made.kind))
            yield Resend(action=made, sender=sender, receiver=receiver, after=after)


def _holder(made: Action, reports: Mapping[str, TeamReport], *, prefer: str) -> str:
    holders = [team for team, report in reports.items() if made in report.logged]
    return prefer if prefer in holders else holders[0]


def _reason(
    missing: Missing,
    reports: Mapping[str, TeamReport],
    *,
    moved: Mapping[tuple[int, int], str],
    num_resends: int,
    served_by: ServedBy,
) -> str:
    """The sentence for the journal."""
    if not missing.actions:
        return "nothing is missing: all work of the step is in living ledgers, the sums are made again"
    anew = sorted(missing.anew)
    givers = sorted({served_by(*place) for place in moved})
    takers = sorted(set(moved.values()))
    num_backwards = sum(action.kind is Kind.B for action in missing.actions)
    num_forwards = len(missing.actions) - num_backwards
    parts = [f"{_count(num_backwards, 'backward')} and {_count(num_forwards, 'forward')} are missing"]
    if missing.forwards_only:
        parts.append(f"{len(missing.forwards_only)} of the forwards only feed a later stage")
    if moved:
        count = len({(team, microbatch) for (_, microbatch), team in moved.items()})
        parts.append(f"{_count(count, 'micro-batch', plural='es')} of {_names(givers)} go to {_names(takers)}")
    if anew:
        parts.append(f"{_names(anew)} starts the step anew")
    if num_resends:
        verb = "is" if num_resends == 1 else "are"
        parts.append(f"{_count(num_resends, 'message')} {verb} sent again from logs")
    return "; ".join(parts)


def _names(teams: Collection[str]) -> str:
    return ", ".join(teams)


def _count(number: int, what: str, *, plural: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else plural}"
