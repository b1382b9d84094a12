"""How a controller begins: with a launch of its own, or where the controller before it was lost.

    Tenure.take          from here on an earlier controller can decide nothing any more
    estate_of            what it had decided, from its journals: the state, the newest turns, what they add up to
    Journal.begin        how this one begins, and after which decision of which controller

A journal belongs to a launch: another launch in the same directory begins from a checkpoint, whatever lies there.
"""

import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from raymega.config.schema import Config
from raymega.control.events import ControllerTakenOver
from raymega.control.loop import Turn
from raymega.control.policy import Rules
from raymega.control.states import Checkpoint, State, first_state
from raymega.driver.records.history import History
from raymega.driver.records.journal import Inherited, Journal, JournalHead
from raymega.driver.records.replay import chain, newest_start, told
from raymega.driver.records.tenure import Tenure

TURNS_KEPT = 1024  # far more than what a client has not read, or a sink not written, when a controller dies


@dataclass(frozen=True, slots=True, kw_only=True)
class Estate:
    """What a lost controller leaves.

    Args:
        state: after its last decision, whose commands may have been sent or not.
        turns: the newest of them, oldest first.
        history: of the launch.
        t: when it was last known to decide.
    """

    state: State
    turns: tuple[Turn, ...]
    history: History
    inherited: Inherited
    t: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """A controller that may decide from here on.

    Args:
        estate: what it takes over; None: it begins the run.
        t: from when on the time is its own.
    """

    tenure: Tenure
    journal: Journal
    state: State
    estate: Estate | None
    t: float

    @property
    def history(self) -> History:
        """Of the launch before its first turn."""
        return History.begin(self.t, step=self.state.story.committed) if self.estate is None else self.estate.history

    @property
    def seq(self) -> int:
        """The number of the last turn before its first."""
        return 0 if self.estate is None else self.estate.inherited.seq

    @property
    def turns(self) -> tuple[Turn, ...]:
        """The newest turns before its first."""
        return () if self.estate is None else self.estate.turns

    @property
    def events(self) -> tuple[ControllerTakenOver, ...]:
        """What it is told before anything else."""
        if self.estate is None:
            return ()
        return (ControllerTakenOver(epoch=self.tenure.epoch, silent_s=max(0.0, time.time() - self.estate.t)),)


def begin(
    folder: Path, *, rules: Rules, checkpoint: Checkpoint | None, launch: str, config: Config, began_t: float
) -> Beginning:
    """Begin a run at `checkpoint`. `began_t`: when it was asked for; the time since then is the run's."""
    tenure = Tenure.take(folder)
    head = JournalHead(
        epoch=tenure.epoch, t=began_t, rules=rules, checkpoint=checkpoint, launch=launch, config=config
    )  # fmt: skip
    state = first_state(epoch=tenure.epoch, checkpoint=checkpoint)
    return Beginning(tenure=tenure, journal=Journal.begin(tenure, head=head), state=state, estate=None, t=head.t)


def take_over(
    folder: Path, *, rules: Rules, checkpoint: Checkpoint | None, launch: str, config: Config, began_t: float
) -> Beginning:
    """Go on where the last controller of `launch` has stopped, or begin, if none of them came to begin.

    Raises: StateError for a journal that is broken in the middle.
    """
    tenure = Tenure.take(folder)
    estate = estate_of(folder, launch=launch, config=config)
    head = JournalHead(
        epoch=tenure.epoch, t=began_t if estate is None else time.time(), rules=rules, checkpoint=checkpoint,
        launch=launch, takes_over=None if estate is None else estate.inherited, config=config,
    )  # fmt: skip
    state = first_state(epoch=tenure.epoch, checkpoint=checkpoint) if estate is None else estate.state
    return Beginning(tenure=tenure, journal=Journal.begin(tenure, head=head), state=state, estate=estate, t=head.t)


def estate_of(folder: Path, *, launch: str, config: Config) -> Estate | None:
    """What the controllers of `launch` have left in the directory of journals; None: nothing."""
    known = chain(folder, launch=launch)
    if not known:
        return None
    known, start = newest_start(known)
    turns: deque[Turn] = deque(maxlen=TURNS_KEPT)
    first = known[0][1]
    committed = first.checkpoint.step if first.checkpoint is not None else 0
    history, t, seq = History.begin(first.t, step=committed), first.t, 0
    state: State = first_state(epoch=first.epoch, checkpoint=first.checkpoint)
    if start is not None:
        history, t, seq, state = start.history, start.t, start.seq, start.state
    for head, turn in told(known, config=config, start=start):
        t = max(t, head.t)
        if turn is not None:
            turns.append(turn)
            history, state, t, seq = history.after(turn), turn.decision.state, turn.t, turn.seq
    inherited = Inherited(epoch=known[-1][1].epoch, seq=seq)
    return Estate(state=state, turns=tuple(turns), history=history, inherited=inherited, t=t)
