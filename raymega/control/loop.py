"""The loop: event in, decide, write it down, commands out - over any hands.

    hands.next_event -> decide -> watchers (journal first) -> hands.carry_out ...

What is written to the journal is on disk before the first command leaves (STEP: a ruling is journalled before it is
sent). A tick comes at least every `tick_s`, also in a stream of events, so that no deadline is overlooked.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from raymega.control.decision import Brain, Decision
from raymega.control.events import Event, Tick
from raymega.control.runtime import Runtime
from raymega.control.states import Failed, Finished, State
from raymega.control.transitions import decide

TICK_S = 0.5


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
    tick_s: float = TICK_S,
) -> Finished | Failed:  # fmt: skip
    """Run until the state is terminal; returns it.

    Args:
        seq: the number of the turn before the first.
        tick_s: between ticks, at most; deadlines are kept as closely as that.
    """
    ticked_t = hands.now()
    while not isinstance(state, Finished | Failed):
        due_s = ticked_t + tick_s - hands.now()
        event = hands.next_event(max(0.0, due_s)) if due_s > 0 else None
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
