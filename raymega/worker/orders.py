"""What the controller has told a worker, and where the training thread waits for it.

Every order carries its generation; an order of an older generation has no effect (law 7). Orders arrive on other
threads than the one that trains, so everything here is under one condition.
"""

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass

from raymega.plan.plan import WorkerId
from raymega.worker.interface import Assignment, Decision, Rates, Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """Leave to do the next step, or only to save what there is.

    `save`: take a snapshot once it has committed; `full`: sum its gradients in full; not `has_step`: save now.
    """

    save: bool
    full: bool = False
    has_step: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Leave `generation`, in which this worker never had its place, and say what it holds."""

    generation: int


class Orders:
    """The newest assignment, the leave granted within it, and whether to go on at all."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._assignment: Assignment | None = None
        self._aborted = 0
        self._until_step = 0
        self._save_at: set[int] = set()
        self._full_at: set[int] = set()
        self._rates: Rates = ()
        self._decided: Decision | None = None
        self._stopped = False
        self._lost: set[WorkerId] = set()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, woken: Callable[[], None]) -> None:
        """Call `woken` (from the ordering thread, outside the lock) whenever a generation ends or the worker stops."""
        self._listeners.append(woken)

    def assign(self, assignment: Assignment) -> None:
        with self._changed:
            if assignment.generation <= max(self._current_generation, self._aborted):
                return
            self._assignment = assignment
            self._until_step, self._save_at, self._rates = assignment.step, set(), assignment.rates
            self._full_at = set()
            self._changed.notify_all()
        self._tell()

    def grant(self, generation: int, until_step: int, save_at: Steps, rates: Rates = (), full_at: Steps = ()) -> None:
        """Extend the leave; it never shrinks within a generation. `rates` change for later steps only."""
        with self._changed:
            if generation != self._current_generation:
                return
            self._until_step = max(self._until_step, until_step)
            self._save_at.update(save_at)
            self._full_at.update((*save_at, *full_at))
            self._rates = rates or self._rates
            self._changed.notify_all()

    def rates(self) -> Rates:
        """(committed steps, `training.lr` of the steps after them), oldest first."""
        return self._rates

    def abort(self, generation: int, *, lost: Collection[WorkerId] = ()) -> Decision | None:
        """Promise that nothing of `generation` or older decides from here on; the newest decision at that moment.

        Args:
            lost: workers that are known to be lost; nobody waits for them.
        """
        with self._changed:
            self._aborted = max(self._aborted, generation)
            self._lost.update(lost)
            self._changed.notify_all()
            decided = self._decided
        self._tell()
        return decided

    def decide(self, decision: Decision) -> bool:
        """Record a decision, if its generation is still current.

        One lock with `abort`: a decision is in the answer to an abort, or it was never made (false).
        """
        with self._changed:
            if not self.is_current(decision.generation):
                return False
            self._decided = decision
            return True

    def forget_decision(self) -> None:
        """The state is another one now: what was decided does not lead to it."""
        with self._changed:
            self._decided = None

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._tell()

    @property
    def stopped(self) -> bool:
        return self._stopped

    @property
    def lost(self) -> frozenset[WorkerId]:
        """Workers of this and older generations that are known to be lost."""
        with self._changed:
            return frozenset(self._lost)

    def is_current(self, generation: int) -> bool:
        """Is `generation` the one to work in?"""
        return not self._stopped and generation == self._current_generation and generation > self._aborted

    def next_order(self, after: int) -> "Assignment | Asked | None":
        """Wait for a place in a generation above `after`, or to be asked to leave one; None once stopped."""
        with self._changed:
            while not self._stopped:
                found = self._assignment
                if found is not None and found.generation > max(after, self._aborted):
                    return found
                if self._aborted > after:
                    return Asked(generation=self._aborted)
                self._changed.wait()
            return None

    @property
    def aborted(self) -> int:
        """The newest generation that was to be left."""
        return self._aborted

    def has_leave(self, generation: int, committed: int) -> bool:
        """Whether `next_leave` would return at once."""
        with self._changed:
            waits = self._until_step <= committed and committed not in self._save_at
            return not (waits and self.is_current(generation))

    def next_leave(self, generation: int, committed: int) -> Leave | None:
        """Wait for leave to do the step after `committed`, or to save its state; None when `generation` is over."""
        with self._changed:
            while self.is_current(generation):
                if committed in self._save_at:
                    self._save_at.remove(committed)
                    return Leave(save=True, has_step=False)
                if self._until_step > committed:
                    save, full = committed + 1 in self._save_at, committed + 1 in self._full_at
                    self._save_at.discard(committed + 1)
                    return Leave(save=save, full=full)
                self._changed.wait()
            return None

    @property
    def _current_generation(self) -> int:
        return self._assignment.generation if self._assignment is not None else 0

    def _tell(self) -> None:
        for woken in self._listeners:
            woken()
