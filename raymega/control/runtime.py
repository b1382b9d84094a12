"""The hands of the brain, as the loop sees them: on Ray, or in virtual time."""

from typing import Protocol

from raymega.control.commands import Command
from raymega.control.events import Event


class Runtime(Protocol):
    """Carries out commands, reports events, decides nothing."""

    def now(self) -> float:
        """Unix seconds; never goes back."""

    def next_event(self, timeout_s: float) -> Event | None:
        """The oldest event not yet returned; None after `timeout_s` without one."""

    def carry_out(self, command: Command) -> None:
        """Begin `command` and return at once; what comes of it is told by events."""
