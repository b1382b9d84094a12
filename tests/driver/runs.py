"""Runs in virtual time, written down by the watchers that a real run has."""

from collections.abc import Sequence
from pathlib import Path

from raymega.control.loop import Turn, Watcher, run
from raymega.control.states import Checkpoint, Failed, Finished, first_state
from raymega.driver.records.journal import Journal, JournalHead
from raymega.driver.records.tenure import Tenure
from tests.control.fake_hands import FakeHands, brain, nodes


class Turns(list[Turn]):
    """Keeps every turn."""

    def saw(self, turn: Turn) -> None:
        self.append(turn)


def played(
    *watchers: Watcher, epoch: int = 1, checkpoint: Checkpoint | None = None, **faults: object
) -> tuple[Finished | Failed, FakeHands]:
    """A run of 20 steps on four devices, with `faults` as in `FakeHands`."""
    hands = FakeHands(**{"nodes": nodes(4), **faults})
    state = first_state(epoch=epoch, checkpoint=checkpoint)
    return run(state, brain=brain(), hands=hands, watchers=watchers), hands


def turns_of(**faults: object) -> Sequence[Turn]:
    turns = Turns()
    played(turns, **faults)
    return turns


def journalled(folder: Path, **faults: object) -> Turns:
    """The turns of a run that also wrote a journal."""
    tenure = Tenure.take(folder)
    head = JournalHead(epoch=tenure.epoch, t=1000.0, rules=brain().rules, checkpoint=None)
    turns, journal = Turns(), Journal.begin(tenure, head=head)
    played(journal, turns, **faults)
    journal.close()
    return turns
