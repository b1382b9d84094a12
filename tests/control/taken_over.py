"""A run whose controllers die: each at a turn of its own, its decision written down or not, some commands sent or not.

loop ... turn n: decided | written | command 1 sent | command 2 | ...      dies anywhere in here
next controller: replay what is written, adopt the workers, ControllerTakenOver, loop ...
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from raymega.control.codec import event_from_json, event_to_json, replay
from raymega.control.commands import Command, WriteStep
from raymega.control.decision import Brain, Decision
from raymega.control.events import (
    ControllerTakenOver,
    Evaluated,
    Event,
    NodesChanged,
    ShardsSaved,
    StepCommitted,
    StopAsked,
    Tick,
)
from raymega.control.invariants import validate_state
from raymega.control.loop import Turn, run
from raymega.control.states import Failed, Finished, State, first_state
from tests.control.fake_hands import FakeHands

TOLD_AGAIN = (ShardsSaved, Evaluated)
NOT_TOLD_AGAIN = (Tick, ControllerTakenOver, StopAsked)


class Killed(Exception):
    """The controller is gone."""


@dataclass(frozen=True, kw_only=True)
class Death:
    """A controller dies in its turn number `turn`: at most `sent` commands are sent, -1: it is not even written."""

    turn: int
    sent: int


@dataclass(kw_only=True)
class Mortal:
    """Hands and journal of one controller."""

    hands: FakeHands
    brain: Brain
    death: Death | None
    first: Event | None
    written: list[tuple[float, str]] = field(default_factory=list)
    seen: list[Event] = field(default_factory=list)
    turns: int = 0
    sent: int = 0
    in_hand: Event | None = None

    def now(self) -> float:
        return self.hands.now()

    def next_event(self, timeout_s: float) -> Event | None:
        if self.death is not None and self.turns >= self.death.turn:
            raise Killed
        if self.first is not None:
            event, self.first = self.first, None
        else:
            event = self.hands.next_event(timeout_s)
        self.in_hand = event
        if event is not None:
            self.seen.append(event)
        return event

    def saw(self, turn: Turn) -> None:
        validate_state(turn.decision.state, self.brain.rules)
        self.turns += 1
        self.sent = 0
        if self._is_due(-1):
            raise Killed
        self.written.append((turn.t, json.dumps(event_to_json(turn.event))))
        if self._is_due(0):
            raise Killed

    def carry_out(self, command: Command) -> None:
        if self._is_due(self.sent):
            raise Killed
        self.hands.carry_out(command)
        self.sent += 1

    def _is_due(self, sent: int) -> bool:
        return self.death is not None and (self.turns, sent) == (self.death.turn, self.death.sent)


def play_through(
    hands: FakeHands, deaths: Sequence[Death], *, brain: Brain
) -> tuple[Finished | Failed, list[list[Decision]]]:
    """The end of the run, and what each controller decided."""
    base: State = first_state(epoch=1)
    first: Event | None = None
    told: list[list[Decision]] = []
    for epoch, death in enumerate((*deaths, None), start=2):
        mortal = Mortal(hands=hands, brain=brain, death=death, first=first)
        try:
            over = run(base, brain=brain, hands=mortal, watchers=[mortal])
        except Killed:
            decided = _replayed(base, mortal, brain)
            told.append(decided)
            base = decided[-1].state if decided else base
            if isinstance(base, Finished | Failed):
                return base, told
            first = _take_over(hands, mortal, base, decided, epoch=epoch)
        else:
            told.append(_replayed(base, mortal, brain))
            return over, told
    raise AssertionError("the last controller lives")


def _replayed(base: State, mortal: Mortal, brain: Brain) -> list[Decision]:
    lines = [(t, event_from_json(json.loads(line))) for t, line in mortal.written]
    return list(replay(base, lines, brain=brain))


def _take_over(
    hands: FakeHands, dead: Mortal, state: State, decided: list[Decision], *, epoch: int
) -> ControllerTakenOver:
    """What the next controller does before its first turn; its first event."""
    written = [command.record for one in decided for command in one.commands if isinstance(command, WriteStep)]
    known = {record.step: record for record in (*hands.metrics, *written) if record.step <= state.story.committed}
    hands.metrics = [known[step] for step in sorted(known)]
    hands.adopt(state)
    hands.tell(0.0, NodesChanged(nodes=hands.nodes))
    event = dead.in_hand  # workers tell what was heard and not written down
    heard = isinstance(event, StepCommitted) and event.step <= state.story.committed
    if event is not None and not isinstance(event, NOT_TOLD_AGAIN) and not heard:
        hands.tell(0.0, event)
    for event in dead.seen:
        if isinstance(event, TOLD_AGAIN):
            hands.tell(0.0, event)
    return ControllerTakenOver(epoch=epoch, silent_s=1.0)
