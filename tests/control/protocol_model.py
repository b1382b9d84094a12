"""The protocol of a step as small state machines: workers, controllers, one bag of messages, and who takes which.

    Worker       computes its micro-batches, sums two buckets and the facts with its peers, decides, applies
    Controller   hears of losses, asks for the next generation, rules once all have promised or are fenced
    World        messages may be taken in any order; workers die, stall and return; controllers die, are replaced
                 and return

After every event the invariants are checked (`World.check`). `walk` lets a list of numbers choose what happens.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise

from tests.control.protocol_controller import Controller, Journal
from tests.control.protocol_worker import NUM_MICROBATCHES, Content, Fault, Message, Worker


class World:
    """All of it. `messages` may be taken in any order."""

    def __init__(self, *, num_workers: int, steps: int = 3, fault: Fault = Fault.NONE, skipped: tuple[int, ...] = ()):
        self.fault, self.steps, self.skipped = fault, steps, skipped
        self.first_members = tuple(f"w{i}" for i in range(num_workers))
        self.workers = {name: Worker(name=name, world=self) for name in self.first_members}
        self.messages: list[Message] = []
        self.waits: Callable[[Message], bool] = lambda message: False  # who is long on the way
        self.exchanges: dict[tuple[int, int, int | str], dict[str, Content]] = {}
        self.journal = Journal(members=self.first_members)
        self.controllers: list[Controller] = []
        self.new_controller()

    def new_controller(self) -> None:
        """It takes the epoch by one atomic act, reads the journal, and asks again."""
        self.journal.epoch += 1
        made = Controller(world=self, epoch=self.journal.epoch, fenced=set(self.journal.fenced))
        self.controllers.append(made)
        made.ask()

    @property
    def controller(self) -> Controller:
        return self.controllers[-1]

    @property
    def fenced(self) -> set[str]:
        return set().union(*(controller.fenced for controller in self.controllers))

    def lapsed(self) -> set[str]:
        """Workers that are dead, or have been silent for longer than their lease."""
        return {name for name, worker in self.workers.items() if not worker.runs}

    def send(self, message: Message) -> None:
        self.messages.append(message)

    def exchange(self, worker: Worker, what: int | str, content: Content) -> None:
        """A sum over the members of a generation: complete once all have put in theirs."""
        parts = self.exchanges.setdefault((worker.generation, worker.held.step, what), {})
        parts[worker.name] = content
        if set(parts) < set(worker.members):
            return
        total = tuple(sorted(pair for part in parts.values() for pair in part))
        for name in worker.members:
            kind, bucket = ("decide", 0) if what == "facts" else ("bucket", int(what))
            self.send(
                Message(
                    kind=kind, to=name, generation=worker.generation, step=worker.held.step, bucket=bucket,
                    content=total,
                )
            )  # fmt: skip

    def deliver(self, message: Message) -> None:
        """Give a message to its receiver; every living controller hears what workers tell, a stalled one later."""
        self.messages.remove(message)
        if message.to != "controller":
            if self.workers[message.to].alive:
                self.workers[message.to].take(message)
            return
        for controller in self.controllers:
            if controller.alive:
                controller.inbox.append(message)

    def moves(self) -> list[Callable[[], None]]:
        """All that can happen next, but for faults of the world."""
        found = [
            lambda message=message: self.deliver(message) for message in self.messages if self._may_arrive(message)
        ]
        for machine in (*self.workers.values(), *self.controllers):
            if machine.runs:
                found += machine.moves()
        return found

    def _may_arrive(self, message: Message) -> bool:
        if self.waits(message):
            return False
        return message.to == "controller" or self.workers[message.to].runs or not self.workers[message.to].alive

    def check(self) -> None:
        """What must hold at any time for those who are not fenced."""
        trusted = [
            worker for worker in self.workers.values() if worker.alive and worker.name not in self.journal.fenced
        ]
        for worker in trusted:
            for applied in worker.history:
                self._is_whole(applied.sums)
        for one, other in pairwise(trusted):
            both = list(zip(one.history, other.history, strict=False))
            assert all(a == b for a, b in both), f"{one.name} and {other.name} have applied different steps"
            assert abs(one.held.step - other.held.step) <= 1, "workers stand in two steps at most"
        self._nobody_applied_what_was_repaired()

    def _is_whole(self, sums: tuple[Content, ...]) -> None:
        assert len(set(sums)) == 1, f"the buckets of one step hold different work: {sums}"
        microbatches = [microbatch for microbatch, _ in sums[0]]
        assert microbatches == list(range(NUM_MICROBATCHES)), f"work was lost or doubled: {sums[0]}"

    def _nobody_applied_what_was_repaired(self) -> None:
        for ruling, members in self.journal.rulings:
            for name in members - self.journal.fenced:
                for applied in self.workers[name].history:
                    late = applied.version.step > ruling.version.step
                    assert not late or applied.version.generation >= ruling.generation, (
                        f"{name} applied step {applied.version.step} of an older generation, which others repair"
                    )

    def disturbances(self, *, least: int) -> Iterator[Callable[[], None]]:
        """What can go wrong next; at least so many workers stay."""
        running = [worker for worker in self.workers.values() if worker.runs and worker.name not in self.fenced]
        for worker in running if len(running) > least else []:
            yield lambda worker=worker: setattr(worker, "alive", False)
            yield lambda worker=worker: setattr(worker, "stalled", True)
        for machine in (*self.workers.values(), *self.controllers):
            if machine.alive and machine.stalled:
                yield lambda machine=machine: setattr(machine, "stalled", False)
        if self.controller.runs:
            yield lambda: setattr(self.controller, "alive", False)
            yield lambda: setattr(self.controller, "stalled", True)
        yield self.new_controller

    def walk(self, choices: Iterable[int], *, rarity: int = 6, least: int = 1) -> None:
        """Let numbers choose what happens; about one event in `rarity` is a disturbance."""
        for choice in choices:
            moves = self.moves()
            wrong = list(self.disturbances(least=least)) if choice % rarity == 0 or not moves else []
            options = wrong or moves
            options[choice // rarity % len(options)]()
            self.check()

    def until(self, holds: Callable[[], object]) -> None:
        """Let things take their course, one by one, until `holds`."""
        for _ in range(3000):
            if holds():
                return
            self.moves()[0]()
            self.check()
        raise AssertionError("this never came to be")

    def deliver_next_ask(self, *, to: str) -> None:
        """Let the controller hear of the loss and ask, before anything else happens."""
        for name in sorted(self.lapsed()):
            self.controller.fence(name)
        while self.controller.outbox:
            self.controller.flush_one()
        newest = max((m for m in self.messages if m.kind == "ask" and m.to == to), key=lambda m: m.generation)
        self.deliver(newest)

    def settle(self) -> None:
        """Nothing more goes wrong, and what was long on the way comes last: the living must finish all steps."""
        if not self.controller.runs:
            self.new_controller()
        for _ in range(3000):
            moves = self.moves()
            if not moves and not any(map(self.waits, self.messages)):
                break
            if moves:
                moves[0]()
            else:
                self.waits = lambda message: False
            self.check()
        living = [w for w in self.workers.values() if w.runs and w.name not in self.fenced]
        assert all(worker.held.step == self.steps for worker in living), "everybody waits, and not all steps are done"
