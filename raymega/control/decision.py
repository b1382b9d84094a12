"""What a decision is, and what it is made with."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from raymega.control.commands import Command
from raymega.control.outlook import Wish
from raymega.control.policy import Rules
from raymega.control.states import Seat, State
from raymega.layout.certificate import Certified, Refused, StatePart
from raymega.layout.copies import Home, Keeping
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import StagesLost
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.repairs import PlanRepair, repair_plan
from raymega.plan.transition import Transition


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The next state, what to do, and the reason as a sentence that a person can read.

    `reason` is empty where nothing worth a word happened: a step, a tick, a message of an older generation.
    """

    state: State
    commands: tuple[Command, ...] = ()
    reason: str = ""


class Planned(Protocol):
    """A plan and why it is this one; the planner's choice has more to tell."""

    @property
    def plan(self) -> Plan: ...
    @property
    def reason(self) -> str: ...


CopiesFor = Callable[[Plan, Mapping[WorkerId, Home]], Keeping]
"""Who keeps a copy of whose state by this plan. Pure."""


class RepairFor(Protocol):
    """As `plan.repairs.repair_plan`. Pure."""

    def __call__(self, plan: Plan, *, reports: Mapping[WorkerId, TeamReport]) -> PlanRepair | StagesLost: ...


PlanFor = Callable[[tuple[Seat, ...]], Planned]
"""Lay the run over some or all of these seats; prefers earlier ones. Pure. Raises PlanError where none will do."""


class Moves(Protocol):
    """What can be known of state that goes over from one plan to another."""

    def plan_for(self, seats: tuple[Seat, ...], wish: Wish) -> Planned:
        """As the brain's `plan_for`, for what was asked for beside the config. Raises PlanError where none will do."""

    def lacks(self, plan: Plan, seats: tuple[Seat, ...]) -> str | None:
        """What devices of `plan` lack to hold it, in words; None if nothing is known to lack."""

    def busiest_bytes(self, transition: Transition, new: Plan) -> int:
        """What the worker with most to receive or to send has to. Raises StateLost if a box has no holder."""

    def certify(
        self, transition: Transition, new: Plan, *, step: int, parts: Mapping[WorkerId, StatePart]
    ) -> Certified | Refused:
        """Is the new state the old one?"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """What decisions are made with, the same for the whole run.

    Without `moves` a live run keeps its plan; without `copies_for` nobody keeps another's state. `repair` says how a
    step is finished that broke.
    """

    rules: Rules
    plan_for: PlanFor
    moves: Moves | None = None
    copies_for: CopiesFor | None = None
    repair: RepairFor = repair_plan
