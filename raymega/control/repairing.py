"""Can the step that broke be finished from what is left of it, and how?

    every member of the generation has left (its promise) or is fenced
        rule         up to which version is the state settled, and who still applies a decision
        repair_plan  who does what is missing of the next step
    no: no living team holds a stage, or too few workers would be left

The ledger and the log of a promise are of the step after the state that its worker has. Who applies a decision only now
has done nothing of the next step. Whose state is void counts as lost. All of the step is missing where nobody has begun
it or no log is kept; in the last save no step follows, and it is saved again by those who are left.
"""

from dataclasses import dataclass, replace

from raymega.config.fault import counted
from raymega.control.arbitration import Decided, Promise, Ruling, Version, rule
from raymega.control.broken import Leaver, RepairUnderway
from raymega.control.commands import AssignPlan
from raymega.control.decision import Brain
from raymega.control.policy import Rules
from raymega.control.restoring import is_restoring
from raymega.control.states import Restoring, Seat, Settling, Story
from raymega.errors import RaymegaBug
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import StagesLost
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.repairs import PlanRepair, orders_of, stages_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mend:
    """How the step is finished: everyone reaches the version of `ruling`, then does its part of `found`.

    Args:
        void: living workers without a state that could be gone on with.
        anew: why all of the step is done by the plan, whatever was done of it: half a sentence; empty: it is not.
        saves_only: no step is left; the state is saved.
    """

    ruling: Ruling
    found: PlanRepair
    void: tuple[WorkerId, ...] = ()
    anew: str = ""
    saves_only: bool = False

    @property
    def reason(self) -> str:
        if not self.anew:
            return f"{self.ruling.reason}; {self.found.repair.reason}"
        gone = ", ".join(f"{replica}.{stage}" for replica, stage in sorted(self.found.plan.lost))
        told = f"{self.anew}: the state of step {self.ruling.version.step} is as it was"
        return f"{told}, without {gone}" if gone else told

    @property
    def recomputed(self) -> int:
        """Actions that may have been done before: of lost teams, of teams that start anew, for others' sake."""
        repair = self.found.repair
        again = {
            action
            for team, program in repair.programs.items()
            for action in program
            if team in repair.anew or (action.stage, action.microbatch) in repair.moved
        }
        return len(again | repair.forwards_only)


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotMend:
    """The step goes back to a rung below."""

    reason: str


def mend(brain: Brain, state: Settling) -> Mend | CannotMend:
    """Find out how to finish the step; everyone of the plan is lost or has left."""
    rules, story = brain.rules, state.story
    anew = why_anew(rules, state)
    if not state.held:
        return CannotMend(reason="not everyone held the state")
    if is_restoring(state):
        return CannotMend(reason="the state was being restored")
    if _is_futile(state, tries=1 if anew else 0):
        return CannotMend(reason="it broke again and nobody is lost")
    living = frozenset(state.plan.living)
    members = {said.worker: said for said in state.left if said.worker in living}
    left = {worker: said for worker, said in members.items() if anew or said.work is not None}
    ruling = ruling_of(replace(state, left=tuple(left.values())))
    if left and ruling.version.step > story.committed:
        return CannotMend(reason=f"step {ruling.version.step} is decided and nobody has told of it")
    if left and ruling.version.step < story.committed:
        return CannotMend(reason=f"nobody who is left has decided step {story.committed}, nor is it known")
    reports = _nobodys_work(state.plan, left, ruling) if anew else _reports(left, ruling)
    found = brain.repair(state.plan, reports=reports)
    if isinstance(found, StagesLost):
        return CannotMend(reason=found.reason)
    if len(found.plan.living) < rules.min_devices:
        few = counted(len(found.plan.living), noun="worker")
        return CannotMend(reason=f"{few} would be left, elastic.min_devices is {rules.min_devices}")
    void = tuple(worker for worker in members if worker not in reports)
    return Mend(ruling=ruling, found=found, void=void, anew=anew, saves_only=is_last_save(rules, state))


def is_last_save(rules: Rules, state: Settling) -> bool:
    """Is no step left to do, but a save?"""
    return state.saves_only or state.story.committed >= rules.steps


def is_of_nodes(state: Settling) -> bool:
    """Whether it broke since nodes went: that of everyone who is lost is known to be gone."""
    story, lost = state.story, {worker for worker, _ in state.lost}
    here = {node.node for node in story.nodes} - story.avoided
    return bool(lost) and all(seat.node not in here for seat in state.seats if seat.worker in lost)


def why_anew(rules: Rules, state: Settling) -> str:
    """Why nothing of the step that broke is gone on with; empty: it is, where that can be."""
    if state.move is not None:
        return "the transition is rolled back"
    if is_last_save(rules, state):
        return "no step is left, those who have the state save it"
    if any(said.short_of_memory for said in state.left):
        return "the step begins anew"
    if state.begins_anew:
        return "nobody has begun the step"
    return "" if rules.repairs else "elastic.boundary_log is off, and the step begins anew"


def _is_futile(state: Settling, *, tries: int) -> bool:
    """Has the same way on been tried so often, with nobody lost since? What was found and mended is no such way."""
    other = state.taken_over or state.move is not None or any(said.short_of_memory for said in state.left)
    return not state.lost and state.story.recoveries > tries and not other


def ruling_of(state: Settling) -> Ruling:
    """The ruling on a generation that everyone has left."""
    generation, members = state.story.next_generation, [said.worker for said in state.left]
    answers = [_promise(said, generation=generation) for said in state.left]
    ruled = rule(generation, members=members, answers=answers, fenced=(), heard=_decided(state.story))
    if isinstance(ruled, Ruling):
        return ruled
    raise RaymegaBug("a generation that everyone has left can be ruled on")


def assignment_of(mended: Mend, *, generation: int) -> AssignPlan:
    """Everyone's part of the repair, in the next generation."""
    ruling, found = mended.ruling, mended.found
    return AssignPlan(
        generation=generation,
        plan=found.plan,
        step=ruling.version.step,
        checkpoint=None,
        keep_state=True,
        settle=ruling.decided,
        repair={} if mended.anew else orders_of(found),
        links=() if mended.anew else tuple(sorted(found.links)),
    )


def after(state: Settling, mended: Mend, *, story: Story, seats: tuple[Seat, ...], now: float) -> Restoring:
    """The state in which the workers regroup for the repair."""
    underway = RepairUnderway(
        step=mended.ruling.version.step + 1,
        recomputed=mended.recomputed,
        missing=len(mended.found.repair.missing),
        detect_s=state.detect_s,
        since=state.since,
        predicted_s=state.detect_s + story.outlook.prices.regroup_s + state.step_s,
    )
    return Restoring(
        story=story, seats=seats, plan=mended.found.plan, since=now, fresh=frozenset(),
        repair=None if mended.anew else underway, stop=state.stop, keeps=True,
        saves_only=mended.saves_only,
    )  # fmt: skip


def _promise(said: Leaver, *, generation: int) -> Promise:
    held = Version(step=said.committed, generation=said.decided_in) if said.committed >= 0 else None
    return Promise(worker=said.worker, generation=generation, held=held, decided=said.decided)


def _decided(story: Story) -> Decided | None:
    """The decision of the newest commit; who lacks an older one has no state any more."""
    decided = story.decided
    return decided if decided is not None and decided.version.step == story.committed else None


def _nobodys_work(plan: Plan, left: dict[WorkerId, Leaver], ruling: Ruling) -> dict[WorkerId, TeamReport]:
    """Of those who have the state of the boundary, or reach it."""
    whole = [worker for worker in left if worker not in ruling.without_state]
    return {worker: TeamReport(stages=stages_of(plan, plan.coord_of(worker).stage)) for worker in whole}


def _reports(left: dict[WorkerId, Leaver], ruling: Ruling) -> dict[WorkerId, TeamReport]:
    """Of those who have a state that is whole, or reach it."""
    without = ruling.without_state
    reports = {w: said.work for w, said in left.items() if said.work is not None and w not in without}
    return {
        worker: TeamReport(stages=report.stages) if worker in ruling.apply else report
        for worker, report in reports.items()
    }
