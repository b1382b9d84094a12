"""Runs on one set of processes, one after the other; what a run left is looked at before the next one begins.

with Arena.open(config, ...) as arena:
    calm = arena.run()                                            Outcome: losses, norms, weights
    shaken = arena.run(orders=("kill stage=0 replica=1 step=2",))   the dead are replaced, the others stay
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from raymega.checkpoint.find import at_step
from raymega.checkpoint.load import load
from raymega.checkpoint.state_item import StateItem
from raymega.config.schema import Config
from raymega.control.brain import brain_of
from raymega.control.loop import Turn
from raymega.control.loop import run as run_loop
from raymega.control.policy import Rules
from raymega.control.states import Failed, Finished, Seat, first_state
from raymega.driver.hands.rendezvous import Rendezvous
from raymega.driver.process.threads import start_thread
from raymega.layout.shard_box import Box
from raymega.plan.plan import WorkerId
from raymega.worker.chaos import FOLDER as CHAOS
from raymega.worker.interface import WorkerSettings
from workloads.chaos.crew import Crew
from workloads.chaos.hands import Kept, ProcessHands
from workloads.chaos.toy import sources_of


@dataclass(frozen=True, kw_only=True)
class Call:
    """An action that was computed to its end, by nobody's ledger. `step`: from 1."""

    generation: int
    step: int
    worker: WorkerId
    action: str
    first_sample: int


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended, and all that it must have in common with one that nobody disturbed. `struck`: by signals."""

    end: Finished | Failed
    kept: Kept
    turns: tuple[Turn, ...]
    struck: frozenset[WorkerId]
    calls: tuple[Call, ...]
    died: dict[WorkerId, int | None]
    weights: dict[str, torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class Memory:
    """A watcher that keeps what it saw."""

    turns: list[Turn] = field(default_factory=list)

    def saw(self, turn: Turn) -> None:
        self.turns.append(turn)


@dataclass(kw_only=True)
class Arena:
    """Processes, and the number of runs that they have seen."""

    config: Config
    folder: Path
    devices: dict[str, int]
    crew: Crew
    rendezvous: Rendezvous
    changes_plans: bool
    epoch: int = 0

    @classmethod
    @contextmanager
    def open(
        cls, config: Config, *, devices: dict[str, int], wait_s: float = 0.0, changes_plans: bool = False
    ) -> Iterator["Arena"]:
        """Processes for runs of `config`; they end with the block, but for the `fork_server` that they come from.

        Args:
            devices: of each node.
            wait_s: what every action takes at least.
            changes_plans: standbys and other plans take effect while a run trains; else only repairs do.
        """
        with ExitStack() as on_end:
            folder = Path(tempfile.mkdtemp(prefix="raymega-chaos-"))
            on_end.callback(shutil.rmtree, folder)

            def settings_of(seat: Seat) -> WorkerSettings:
                return WorkerSettings(
                    worker=seat.worker, config=config, run_dir=str(folder), checkpoint_dir=str(folder / "checkpoints"),
                    device="cpu", node=seat.node, node_number=sorted(devices).index(seat.node),
                )  # fmt: skip

            rendezvous = Rendezvous("127.0.0.1")
            on_end.callback(rendezvous.close)
            crew = Crew(settings_of, calls=str(folder / "calls"), lease_s=config.elastic.lease_s, wait_s=wait_s)
            on_end.callback(crew.close)
            yield cls(
                config=config, folder=folder, devices=devices, crew=crew, rendezvous=rendezvous,
                changes_plans=changes_plans,
            )  # fmt: skip

    def run(self, *, orders: tuple[str, ...] = (), beside: Callable[[ProcessHands], None] | None = None) -> Outcome:
        """One run from the first step to the last. `beside`: in a thread meanwhile; what it raises, this raises."""
        self.epoch += 1
        checkpoints, calls = self.folder / "checkpoints", self.folder / "calls"
        for old in (checkpoints, self.folder / CHAOS):
            shutil.rmtree(old, ignore_errors=True)
        checkpoints.mkdir()
        calls.write_bytes(b"")
        self.crew.ended.clear()
        self.crew.struck.clear()
        memory = Memory()
        hands = ProcessHands(
            self.config, crew=self.crew, rendezvous=self.rendezvous, sources=sources_of(self.config), folder=checkpoints
        )
        try:
            end = self._live(hands, memory, orders=orders, beside=beside)
        finally:
            hands.close()
        return Outcome(
            end=end,
            kept=hands.kept,
            turns=tuple(memory.turns),
            struck=frozenset(self.crew.struck),
            calls=tuple(_call(line) for line in calls.read_text().splitlines()),
            died=dict(self.crew.ended),
            weights=self._weights(checkpoints, step=max(hands.kept.records)) if isinstance(end, Finished) else {},
        )

    def _live(
        self, hands: ProcessHands, memory: Memory, *, orders: tuple[str, ...],
        beside: Callable[[ProcessHands], None] | None,
    ) -> Finished | Failed:  # fmt: skip
        hands.disturb(orders)
        hands.tell_nodes(self.devices)
        if beside is not None:
            start_thread(partial(beside, hands), name="beside", failed=hands.fail)
        brain = brain_of(self.config, rules=Rules.of(self.config, validates=False))
        if not self.changes_plans:
            brain = replace(brain, moves=None)
        return run_loop(first_state(epoch=self.epoch, checkpoint=None), brain=brain, hands=hands, watchers=(memory,))

    def _weights(self, checkpoints: Path, *, step: int) -> dict[str, torch.Tensor]:
        found = at_step(str(checkpoints), step=step)
        tensors = found.manifest.tensors
        items = [
            StateItem(name=t.name, kind=t.kind, shape=t.shape, box=Box.whole(t.shape), tensor=torch.empty(t.shape))
            for t in tensors
        ]
        load(found.uri, items=items, expected=tensors)
        return {item.name: item.tensor for item in items}


def _call(line: str) -> Call:
    generation, step, worker, action, first = line.split()
    return Call(generation=int(generation), step=int(step) + 1, worker=worker, action=action, first_sample=int(first))


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """max|a - b| / max|b|, the measure of law 1."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(torch.finfo(b.dtype).tiny))
