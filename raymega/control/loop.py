"""The loop: event in, decide, write it down, commands out - over any hands.

    hands.next_event -> decide -> watchers (journal first) -> hands.carry_out ...

What is written to the journal is on disk before the first command leaves (STEP: a ruling is journalled before it is
sent). A tick comes at least every `tick_s`, also in a stream of events, so that no deadline is overlooked, and at once
where workers got leave first and the rest was put off; in virtual time those are left out that would find nothing to
decide.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil, inf
from typing import Protocol

from raymega.control.decision import Brain, Decision
from raymega.control.events import Event, Tick
from raymega.control.quiet import is_due_at_once
from raymega.control.runtime import Runtime
from raymega.control.states import Failed, Finished, State
from raymega.control.transitions import decide

TICK_S = 0.5
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One turn of the loop. Turns without any effect are not told to watchers."""

    seq: int
    t: float
    before: State
    event: Event
    decision: Decision


class Watcher(Protocol):
    """Someone who writes down or shows what was decided: journal, metrics, events, console."""

    def saw(self, turn: Turn) -> None: ...


def run(
    state: State, *, brain: Brain, hands: Runtime, watchers: Sequence[Watcher] = (), seq: int = 0,
    tick_s: float = TICK_S, due_t: Callable[[State], float] | None = None,
) -> Finished | Failed:  # fmt: skip
    """Run until the state is terminal; returns it.

    Args:
        seq: the number of the turn before the first.
        tick_s: between ticks, at most; deadlines are kept as closely as that.
        due_t: ticks before this time would decide nothing, and are left out; None: all are told.
    """
    ticked_t = hands.now()
    while not isinstance(state, Finished | Failed):
        beat_t = ticked_t + tick_s
        if due_t is not None:
            beat_t = _next_beat_t(ticked_t, tick_s=tick_s, now=hands.now(), due_t=due_t(state))
        due_s = beat_t - hands.now()
        waits = due_s > 0 and not (brain.moves is not None and is_due_at_once(state))
        event = hands.next_event(due_s) if waits else None
        now = hands.now()
        if event is None:
            event, ticked_t = Tick(), now
        decision = decide(brain, state, event, now)
        if decision.state != state or decision.commands or decision.reason:
            seq += 1
            turn = Turn(seq=seq, t=now, before=state, event=event, decision=decision)
            for watcher in watchers:
                watcher.saw(turn)
        for command in decision.commands:
            hands.carry_out(command)
        state = decision.state
    return state


def _next_beat_t(ticked_t: float, *, tick_s: float, now: float, due_t: float) -> float:
    """The first beat after `ticked_t` that is neither past nor before `due_t`."""
    later_s = max(now, due_t) - ticked_t
    return ticked_t + tick_s * max(1, ceil(later_s / tick_s - ROUNDING)) if later_s < inf else inf
