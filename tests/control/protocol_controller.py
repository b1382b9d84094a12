"""A controller in the model of the protocol: hears of losses, asks for the next generation, rules, tells.

The ruling and the repair are those of the package. Controllers share a journal, which is written before anything is
sent and refuses whoever is not the newest.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from raymega.control.arbitration import Decided, Promise, Ruling, Wait, rule
from raymega.pipeline.actions import Action, Kind
from raymega.pipeline.missing import TeamReport
from raymega.pipeline.repair import Repair, repair
from raymega.pipeline.timeline import even_durations
from tests.control.protocol_worker import EPOCH, NUM_MICROBATCHES, Fault, Go, Message


class Surroundings(Protocol):
    """What a controller sees of the world."""

    fault: Fault
    journal: "Journal"
    first_members: tuple[str, ...]

    def send(self, message: Message) -> None: ...
    def lapsed(self) -> set[str]: ...


@dataclass
class Journal:
    """Written before anything is sent; refuses an older epoch."""

    epoch: int = 0
    generation: int = 0
    members: tuple[str, ...] = ()
    fenced: set[str] = field(default_factory=set)
    rulings: list[tuple[Ruling, frozenset[str]]] = field(default_factory=list)


@dataclass
class Controller:
    world: Surroundings
    epoch: int
    alive: bool = True
    stalled: bool = False
    generation: int = 0
    asking: bool = False
    answers: list[Promise] = field(default_factory=list)
    done: dict[str, frozenset[int]] = field(default_factory=dict)
    heard: Decided | None = None
    fenced: set[str] = field(default_factory=set)
    inbox: list[Message] = field(default_factory=list)
    outbox: list[Message] = field(default_factory=list)

    @property
    def runs(self) -> bool:
        return self.alive and not self.stalled

    @property
    def is_current(self) -> bool:
        return self.epoch == self.world.journal.epoch

    def moves(self) -> Iterator[Callable[[], None]]:
        if self.inbox:
            yield lambda: self.take(self.inbox.pop(0))
        if self.outbox:
            yield self.flush_one
        for name in self.world.lapsed() - self.fenced:
            yield lambda name=name: self.fence(name)
        if self.asking and not isinstance(self._ruling(), Wait):
            yield self.go_on

    def flush_one(self) -> None:
        self.world.send(self.outbox.pop(0))

    def fence(self, name: str) -> None:
        """A worker is dead, or its lease has lapsed: never heard again. The journal first."""
        if not self.is_current:
            return self._leave()
        self.world.journal.fenced.add(name)
        self.fenced.add(name)
        self.ask()
        return None

    def ask(self) -> None:
        """The next generation is asked for; of all who may still be in an older one."""
        if not self.is_current:
            return self._leave()
        journal = self.world.journal
        journal.generation = self.generation = max(journal.generation, self.epoch * EPOCH) + 1
        self.asking, self.answers, self.done = True, [], {}
        living = [name for name in journal.members if name not in self.fenced]
        self.outbox += [Message(kind="ask", to=name, generation=self.generation) for name in living]
        return None

    def take(self, message: Message) -> None:
        if message.sender in self.fenced and self.world.fault is not Fault.RETURNED_WORKER_IS_HEARD:
            return
        if message.promise is not None and message.promise.generation == self.generation:
            self.answers.append(message.promise)
            self.done[message.sender] = message.done
        if message.kind == "done" and message.decided is not None:
            newest = self.heard is None or message.decided.version.step > self.heard.version.step
            self.heard = message.decided if newest else self.heard

    def _ruling(self) -> Ruling | Wait:
        members = self.world.journal.members
        if self.world.fault is Fault.RULES_TOO_EARLY and self.answers:
            members = tuple(name for name in members if name in self.done)
        return rule(
            self.generation, members=members, answers=self.answers, fenced=frozenset(self.fenced), heard=self.heard
        )

    def go_on(self) -> None:
        """Rule, write it down, and only then tell the members."""
        if not self.is_current:
            return self._leave()
        ruling, journal = self._ruling(), self.world.journal
        assert isinstance(ruling, Ruling)
        members = tuple(name for name in journal.members if name not in self.fenced)
        journal.members = members
        journal.rulings.append((ruling, frozenset(members)))
        self.asking = False
        if not members:
            return None
        quotas = self._quotas(ruling, members)
        for name in members:
            go = Go(generation=self.generation, members=members, ruling=ruling, quota=quotas[name])
            self.outbox.append(Message(kind="go", to=name, generation=self.generation, go=go))
        return None

    def _quotas(self, ruling: Ruling, members: tuple[str, ...]) -> dict[str, tuple[int, ...]]:
        """Who computes what of the step that is repaired, what is computed included."""
        reports = {name: self._report(name, ruling) for name in members}
        made = repair(
            reports,
            served_by=lambda _, microbatch: self.world.first_members[microbatch % len(self.world.first_members)],
            durations=even_durations(num_stages=1),
            limit=lambda team, count: 1,
            num_stages=1,
            num_microbatches=NUM_MICROBATCHES,
        )
        assert isinstance(made, Repair)
        facts = {name: {a.microbatch for a in (*made.kept[name], *made.programs[name])} for name in members}
        return {name: tuple(sorted(some)) for name, some in facts.items()}

    def _report(self, name: str, ruling: Ruling) -> TeamReport:
        """Its ledger of the step that is repaired: empty if it has only now come to it."""
        counts = self.done[name] if name in self.done and name not in ruling.apply else frozenset()
        return TeamReport(stages=(0,), done=frozenset(Action(0, kind, m) for m in counts for kind in Kind))

    def _leave(self) -> None:
        """A newer controller has taken the journal."""
        self.alive = False
