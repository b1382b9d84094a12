"""A run told again from its journals: how each controller began, and every turn it had.

    000001.jsonl   head, turn 1 .. turn 57, (turn 58: written by a controller that had been replaced: it never was)
    000002.jsonl   head: takes over after turn 57 of 1; turn 58, ..
    000003.jsonl   head: a new launch from a checkpoint; turn 1, ..

Nothing but the run's directory is needed: the brain is pure, so the states need not have been written down.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from raymega.config.schema import Config
from raymega.control.brain import brain_of
from raymega.control.decision import Brain, Decision
from raymega.control.loop import Turn
from raymega.control.states import State, first_state
from raymega.control.transitions import decide
from raymega.driver.records.journal import JournalEntry, JournalHead, read_entries, read_head, unlike_written
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.snapshot import Snapshot, read_snapshot
from raymega.driver.records.tenure import journals
from raymega.errors import RaymegaBug, StateError

Chain = tuple[tuple[Path, JournalHead], ...]


def heads(folder: Path) -> Chain:
    """The journals of a run whose controllers lived long enough to say how they began."""
    return tuple((file, read_head(file)) for file in journals(folder) if next(read_lines(file), None) is not None)


def chain(folder: Path, *, launch: str) -> Chain:
    """The journals of the controllers that had `launch`, the newest run of the directory; none if it is another."""
    known = heads(folder)
    if not known or known[-1][1].launch != launch:
        return ()
    return tuple((file, head) for file, head in known if head.launch == launch)


def cuts_of(known: Iterable[tuple[Path, JournalHead]]) -> dict[int, int]:
    """The last turn that counts, of each controller that was taken over from."""
    return {head.takes_over.epoch: head.takes_over.seq for _, head in known if head.takes_over is not None}


def newest_start(known: Chain) -> tuple[Chain, Snapshot | None]:
    """The journals of a launch from that on which has the newest snapshot of a turn that counts."""
    cuts = cuts_of(known)
    for index in range(len(known) - 1, -1, -1):
        file, head = known[index]
        found = read_snapshot(file)
        if found is not None and found.seq <= cuts.get(head.epoch, found.seq):
            return known[index:], found
    return known, None


def told(
    told_by: Iterable[tuple[Path, JournalHead]], *, config: Config, start: Snapshot | None = None
) -> Iterator[tuple[JournalHead, Turn | None]]:
    """How each controller began, and its turns, decided again.

    Args:
        config: of controllers that have not said theirs.
        start: after some turn of the first of them; what was before is left out.
    Raises: StateError for a journal that is broken in the middle.
    """
    known = tuple(told_by)
    cuts, states = cuts_of(known), dict[int, State]()
    for file, head in known:
        brain = brain_of(head.config or config, rules=head.rules)
        state: State = first_state(epoch=head.epoch, checkpoint=head.checkpoint)
        offset = 0
        if start is not None:
            state, offset, start = start.state, start.offset, None
        elif head.takes_over is not None:
            state = _taken_over(states, head.takes_over.epoch, file=file)
        yield head, None
        for entry in read_entries(file, offset=offset):
            if entry.seq > cuts.get(head.epoch, entry.seq):
                break
            decision = _decided(brain, state, entry)
            yield head, Turn(seq=entry.seq, t=entry.t, before=state, event=entry.event, decision=decision)
            state = decision.state
        states[head.epoch] = state


def _taken_over(states: Mapping[int, State], epoch: int, *, file: Path) -> State:
    if epoch not in states:
        raise StateError(
            f"{file} goes on where controller {epoch} stopped, whose journal is not there. Put {epoch:06d}.jsonl back "
            "beside it"
        )
    return states[epoch]


def _decided(brain: Brain, state: State, entry: JournalEntry) -> Decision:
    """Decide again. Raises: StateError naming a line that cannot follow those before it."""
    try:
        return decide(brain, state, entry.event, entry.t)
    except (RaymegaBug, AssertionError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        what = f"{type(entry.event).__name__} does not follow from what is written before it"
        raise unlike_written(entry.place, what=what, error=error) from error
