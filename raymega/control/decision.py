"""What a decision is, and what it is made with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from raymega.control.commands import Command
from raymega.control.policy import Rules
from raymega.control.states import Seat, State
from raymega.plan.plan import Plan


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


PlanFor = Callable[[tuple[Seat, ...]], Planned]
"""Lay the run over some or all of these seats; prefers earlier ones. Pure. Raises PlanError where none will do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Brain:
    """What decisions are made with, the same for the whole run."""

    rules: Rules
    plan_for: PlanFor
