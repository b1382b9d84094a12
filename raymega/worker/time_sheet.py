"""Where one worker's seconds went, by its own clock: each since its birth is in one category (law 8).

    start       until its first step may begin      repair, move  the same in a later generation
    useful      computing and applying              bubble        waiting for a neighbouring stage
    exchange    sums, facts, gathered weights       data          waiting for a batch
    checkpoint  held up by a snapshot, or copies    validation    evaluating
    detect      stuck in a step that then broke     replay        what a broken step lost, and steps done again
    idle        the rest

    waiting-batch compute reduce decide apply | commit          the step in hand was what it was spent on
    waiting-batch compute | leave .. keep(share)                a repair has kept that share of it; the rest is replay

The numbers only ever add up, and every pulse tells all of them: a pulse that is lost loses nothing.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from raymega.pipeline.actions import Action

OF_STEP = {
    "waiting-batch": "data", "compute": "useful", "reduce": "exchange", "copies": "checkpoint", "decide": "exchange",
    "apply": "useful", "gather": "exchange",
}  # fmt: skip
BETWEEN_STEPS = {"moving": "move", "evaluate": "validation", "snapshot": "checkpoint"}
CAN_BE_STUCK = frozenset({"compute", "reduce", "copies", "decide", "gather"})
GENERATIONS = 1_000_000  # of one controller, as `Assignment.generation` counts them


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A worker's seconds since its birth; together with those in hand they are all there were.

    Args:
        born_t: unix time of the birth, by the worker's clock: tells it from others of its name.
        seconds: by category.
        in_hand: by category, of the step that is not yet committed.
    """

    born_t: float = 0.0
    seconds: Mapping[str, float] = field(default_factory=dict)
    in_hand: Mapping[str, float] = field(default_factory=dict)


class TimeSheet:
    """Written by the training thread; `phase` and `spent` may be read by any.

    `phase`: idle, building, loading, moving, snapshot, evaluate, or that of the step.
    """

    def __init__(self, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self.phase = "idle"
        self._born_t = time.time()
        self._clock, self._lock = clock, threading.Lock()
        self._since, self._category, self._is_in_step = clock(), "idle", False
        self._otherwise = "idle"  # what a phase counts as that is in neither table
        self._generation, self._furthest = 0, 0
        self._settled: defaultdict[str, float] = defaultdict(float)
        self._in_hand: defaultdict[str, float] = defaultdict(float)
        self._broken: defaultdict[str, float] = defaultdict(float)

    def begin(self, generation: int, *, is_moved: bool) -> None:
        """Enter a generation; in the first of a run, having waited for the others was part of the start."""
        with self._lock:
            self._close()
            is_first, self._generation = self._generation == 0, generation
            if is_first and generation % GENERATIONS == 1:
                self._settled["start"] += self._settled.pop("idle", 0.0)
            self._otherwise = "move" if is_moved else "start" if is_first else "repair"
            self.phase, self._category = "building", self._otherwise

    def enter(self, phase: str) -> None:
        """A phase begins."""
        with self._lock:
            self._close()
            self.phase, self._is_in_step = phase, phase in OF_STEP
            if self._is_in_step:
                self._category, self._otherwise = OF_STEP[phase], "idle"
            else:
                self._category = BETWEEN_STEPS.get(phase, self._otherwise)

    def commit(self, step: int, *, wait_s: float = 0.0) -> None:
        """The step in hand counts: `step` are committed now, and its snapshot follows.

        `wait_s`: of its computing, what it waited for neighbours.
        """
        with self._lock:
            self._close()
            self._part(wait_s)
            is_again, self._furthest = step <= self._furthest, max(step, self._furthest)
            for name, seconds in self._in_hand.items():
                self._settled["replay" if is_again else name] += seconds
            self._in_hand.clear()
            self.phase, self._category, self._is_in_step = "snapshot", BETWEEN_STEPS["snapshot"], False

    def settle(self, step: int) -> None:
        """The step that broke counts as a whole: others had committed it, and it was applied just now."""
        self.keep(1.0)
        with self._lock:
            for name, seconds in self._in_hand.items():
                self._settled[name] += seconds
            self._in_hand.clear()
            self._furthest = max(step, self._furthest)

    def leave(self, *, done_at: float = 0.0, wait_s: float = 0.0) -> None:
        """The generation is over. Its last action ended at `done_at`, by the same clock: from then on it was stuck."""
        with self._lock:
            if self._is_in_step and self.phase in CAN_BE_STUCK:
                self._close(until=max(self._since, done_at))
                self._is_in_step, self._category = False, "detect"
            self._close()
            self._part(wait_s)
            for name, seconds in self._in_hand.items():
                self._broken[name] += seconds
            self._in_hand.clear()
            self._is_in_step, self._category, self._otherwise = False, "repair", "repair"

    def keep(self, share: float) -> None:
        """The step that broke goes on with this share of what was done of it; 0: with nothing."""
        with self._lock:
            for name, seconds in self._broken.items():
                self._in_hand[name] += seconds * share
                self._settled["replay"] += seconds * (1 - share)
            self._broken.clear()

    @property
    def spent(self) -> Spent:
        """All up to now; a step that broke is replay until a repair goes on with it."""
        with self._lock:
            self._close()
            lost_s = sum(self._broken.values())
            seconds = {**self._settled, "replay": self._settled["replay"] + lost_s}
            return Spent(born_t=self._born_t, seconds=seconds, in_hand=dict(self._in_hand))

    def _close(self, *, until: float | None = None) -> None:
        now = self._clock() if until is None else until
        (self._in_hand if self._is_in_step else self._settled)[self._category] += now - self._since
        self._since = now

    def _part(self, wait_s: float) -> None:
        waited_s = min(wait_s, self._in_hand["useful"])
        self._in_hand["useful"] -= waited_s
        self._in_hand["bubble"] += waited_s


def kept_share(done: Collection[Action], kept: Collection[Action]) -> float:
    """Of what was done of a step, what goes on."""
    return sum(action in kept for action in done) / len(done) if done else 0.0
