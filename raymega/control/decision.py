"""A decision: the next state, what to do, and the reason as a sentence that a person can read."""

from dataclasses import dataclass

from raymega.control.commands import Command
from raymega.control.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the brain makes of an event. `reason` is empty where nothing worth a word happened (a step, a tick)."""

    state: State
    commands: tuple[Command, ...] = ()
    reason: str = ""
