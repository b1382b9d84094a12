"""A worker in the model of the protocol: computes, sums two buckets and the facts, decides, promises, applies.

Workers hold the same stage, so any of them can do any work. A fault is planted by its name; each breaks one rule, and
some invariant must notice.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from raymega.control.arbitration import Decided, Promise, Ruling, Version

NUM_MICROBATCHES = 4
BUCKETS = (0, 1)
EPOCH = 1_000_000
FIRST = Version(step=0, generation=0)

Content = tuple[tuple[int, str], ...]  # (micro-batch, who computed what counts of it)


class Fault(StrEnum):
    """One broken rule."""

    NONE = "none"
    PROMISE_NOT_UNDER_ONE_LOCK = "the promise tells of decisions as they were before it was made"
    LATE_PACKET_APPLIES = "a decision is recorded after the promise"
    RULES_TOO_EARLY = "the ruling does not wait for all promises"
    BUCKET_STAYS = "one sum of the broken generation is not made again"
    RETURNED_WORKER_IS_HEARD = "what a fenced worker reports still counts"
    OLD_CONTROLLER_IS_OBEYED = "workers obey an older generation"
    DECISION_IS_FORGOTTEN = "the answer leaves out the decision that is not yet applied"


@dataclass(frozen=True, kw_only=True)
class Message:
    """What travels; `kind` says which fields mean anything."""

    kind: str  # bucket, decide, ask, promise, go, done
    to: str
    sender: str = ""
    generation: int = 0
    step: int = 0
    bucket: int = 0
    content: Content = ()
    decided: Decided | None = None
    promise: Promise | None = None
    done: frozenset[int] = frozenset()
    go: "Go | None" = None

    def __str__(self) -> str:
        return f"{self.kind} g{self.generation % EPOCH} s{self.step} -> {self.to}"


@dataclass(frozen=True, kw_only=True)
class Go:
    """The controller's word after a ruling: who is in, what is applied, who computes what of the next step."""

    generation: int
    members: tuple[str, ...]
    ruling: Ruling
    quota: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Applied:
    """One step that a worker has applied; `sums` are the contents of its buckets."""

    version: Version
    facts: bytes
    sums: tuple[Content, ...]


class Wires(Protocol):
    """What a worker sees of the world."""

    fault: Fault
    steps: int
    skipped: tuple[int, ...]

    def send(self, message: Message) -> None: ...
    def exchange(self, worker: "Worker", what: int | str, content: Content) -> None: ...


@dataclass
class Worker:
    name: str
    world: Wires
    alive: bool = True
    stalled: bool = False
    generation: int = 0
    promised: int = 0
    members: tuple[str, ...] = ()
    held: Version = FIRST
    decided: Decided | None = None
    quota: tuple[int, ...] = ()
    computed: set[int] = field(default_factory=set)
    sums: dict[int, Content] = field(default_factory=dict)
    sent: set[int | str] = field(default_factory=set)
    history: list[Applied] = field(default_factory=list)
    half_promised: tuple[int, Decided | None] | None = None

    @property
    def runs(self) -> bool:
        return self.alive and not self.stalled

    @property
    def is_current(self) -> bool:
        """May anything of its generation decide here?"""
        if self.world.fault is Fault.LATE_PACKET_APPLIES:
            return True
        return self.generation >= self.promised

    @property
    def pending(self) -> Decided | None:
        """Decided and not yet applied."""
        return self.decided if self.decided is not None and self.decided.version.step > self.held.step else None

    def moves(self) -> Iterator[Callable[[], None]]:
        """What it can do by itself."""
        if self.half_promised is not None:
            yield self._finish_promise
            return
        if self.pending is not None and self.generation >= self.promised:
            yield self.apply
        elif self.is_current and self.generation > 0 and self.held.step < self.world.steps:
            if set(self.quota) - self.computed:
                yield self.compute
            elif (bucket := next((b for b in BUCKETS if b not in self.sent), None)) is not None:
                yield lambda: self.contribute(bucket)
            elif len(self.sums) == len(BUCKETS) and "facts" not in self.sent:
                yield lambda: self.contribute("facts")

    def compute(self) -> None:
        self.computed.add(min(set(self.quota) - self.computed))

    def contribute(self, what: int | str) -> None:
        self.sent.add(what)
        content = tuple((m, self.name) for m in sorted(self.computed))
        self.world.exchange(self, what, content)

    def take(self, message: Message) -> None:
        {"bucket": self._bucket, "decide": self._decide, "ask": self._ask, "go": self._go}[message.kind](message)

    def _bucket(self, message: Message) -> None:
        if message.generation == self.generation and self.generation >= self.promised:
            self.sums[message.bucket] = message.content

    def _decide(self, message: Message) -> None:
        """DECIDED is recorded under the lock of the promise."""
        if message.generation == self.generation and self.is_current and message.step == self.held.step:
            version = Version(step=message.step + 1, generation=message.generation)
            self.decided = Decided(version=version, facts=b"skip" if message.step in self.world.skipped else b"commit")
            if self.world.fault is Fault.LATE_PACKET_APPLIES:
                self.apply()

    def apply(self) -> None:
        """State and history go on; all of the step is dropped."""
        pending = self.pending
        assert pending is not None
        self.held = pending.version
        sums = tuple(self.sums.get(bucket, ()) for bucket in BUCKETS)
        self.history.append(Applied(version=self.held, facts=pending.facts, sums=sums))
        self.computed, self.sums, self.sent = set(), {}, set()
        self.quota = tuple(m for m in range(NUM_MICROBATCHES) if self.members[m % len(self.members)] == self.name)
        self.world.send(Message(kind="done", to="controller", sender=self.name, decided=self.decided))

    def _ask(self, message: Message) -> None:
        obeys = message.generation > self.promised or self.world.fault is Fault.OLD_CONTROLLER_IS_OBEYED
        if not obeys and message.generation != self.promised:
            return
        if self.world.fault is Fault.PROMISE_NOT_UNDER_ONE_LOCK:
            self.half_promised = (message.generation, self.decided)
            return
        self._promise(message.generation, self.decided)

    def _finish_promise(self) -> None:
        assert self.half_promised is not None
        (generation, decided), self.half_promised = self.half_promised, None
        self._promise(generation, decided)

    def _promise(self, generation: int, decided: Decided | None) -> None:
        self.promised = max(self.promised, generation)
        if self.world.fault is Fault.DECISION_IS_FORGOTTEN and self.pending is not None:
            decided = None
        answer = Promise(worker=self.name, generation=generation, held=self.held, decided=decided)
        done = frozenset(self.computed)
        self.world.send(Message(kind="promise", to="controller", sender=self.name, promise=answer, done=done))

    def _go(self, message: Message) -> None:
        go = message.go
        assert go is not None
        obeys = self.world.fault is Fault.OLD_CONTROLLER_IS_OBEYED
        if (go.generation != self.promised and not obeys) or (go.generation <= self.generation and not obeys):
            return
        self.generation, self.members = go.generation, go.members
        if self.name in go.ruling.apply:
            self.decided = go.ruling.decided
            self.apply()
        kept = {0: self.sums[0]} if self.world.fault is Fault.BUCKET_STAYS and 0 in self.sums else {}
        self.sums, self.sent = kept, set(kept)
        self.quota = go.quota
