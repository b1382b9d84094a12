"""What a worker holds of the run: its chunks of the model, their optimizers, and how many steps they have seen.

    chunk 0   flat parameters | accumulated gradients | moments        every flat buffer of one layout
    chunk 1   ...
    committed steps, skipped steps, loss scale                         everything else follows from these

All of it is listed by `items` under (name, kind, box); what is not listed may not influence the next step.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from raymega.checkpoint.load import load, load_params
from raymega.checkpoint.state_item import StateItem
from raymega.comm.port import GroupPort
from raymega.config.schema import Config
from raymega.errors import RaymegaBug
from raymega.layout.checkpoint_layout import Share, assign
from raymega.layout.checkpoint_manifest import TensorInfo, tensors_of
from raymega.layout.param_layout import holdings
from raymega.model.stage import specs_of
from raymega.train.loss_scale import UNSCALED, LossScale, first_scale
from raymega.train.state_items import HeldParam
from raymega.worker.chunk import Chunk, Seat, make_chunk
from raymega.worker.pieces import HeldPiece
from raymega.worker.world import World

COUNTER_WORDS = 7  # of `Counters`, where they travel


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Which state it is. `updates`: of the optimizers; -1 where those of its chunks differ."""

    committed: int
    skipped: int
    decided_in: int
    updates: int
    scale: LossScale = UNSCALED

    def to_words(self) -> tuple[int, ...]:
        """As 64-bit integers; `of_words` gives equal ones."""
        return self.committed, self.skipped, self.decided_in, self.updates, *self.scale.to_words()

    @classmethod
    def of_words(cls, words: Sequence[int]) -> "Counters":
        committed, skipped, decided_in, updates, *scale = words
        return cls(
            committed=committed, skipped=skipped, decided_in=decided_in, updates=updates,
            scale=LossScale.of_words((scale[0], scale[1], scale[2])),
        )  # fmt: skip


@dataclass(slots=True, kw_only=True)
class TrainState:
    """A worker's state of the run.

    Args:
        seat: decides what it consists of.
        chunks: by virtual stage.
        decided_in: the generation that decided it; 0: it is loaded, or of first values.
    """

    seat: Seat
    chunks: Mapping[int, Chunk]
    team: GroupPort
    committed: int = 0
    skipped: int = 0
    decided_in: int = 0
    scale: LossScale = UNSCALED

    @classmethod
    def build(cls, config: Config, *, world: World, device: torch.device) -> "TrainState":
        """First values, for this worker's boxes."""
        return _assemble(config, world=world, device=device, first_values=True, old=None)

    @classmethod
    def blank(
        cls, config: Config, *, world: World, device: torch.device, old: "TrainState | None" = None
    ) -> "TrainState":
        """Zeros, but for the chunks of `old` that hold what is wanted: those are in both, and stay as they are."""
        return _assemble(config, world=world, device=device, first_values=False, old=old)

    def rejoin(self, world: World) -> None:
        """The same state in another membership."""
        self.team.attach(world.team)
        for chunk in self.chunks.values():
            chunk.share(world)

    def load(self, uri: str, *, config: Config) -> None:
        """Fill everything from a checkpoint; it must hold this state, no more and no less."""
        load(uri, items=tuple(self.items()), expected=tensors_of(specs_of(config), kinds=self.kinds))
        self._changed()

    def load_params(self, uri: str, *, config: Config) -> None:
        """Take a checkpoint's parameters only."""
        load_params(uri, items=tuple(self.items()), expected=tensors_of(specs_of(config), kinds=self.kinds))
        self._changed()

    def _changed(self) -> None:
        for chunk in self.chunks.values():
            chunk.changed()

    def begin_at(self, *, committed: int, skipped: int, scale: LossScale | None = None) -> None:
        """Set the counters; the optimizers' follow from them. `scale` None: that of the first step."""
        self.scale = self.scale if scale is None else scale
        self.committed, self.skipped, self.decided_in = committed, skipped, 0
        for piece in self._pieces:
            piece.optimizer.updates.fill_(committed - skipped)

    def take_over(self, items: Iterable[StateItem], *, beside: "TrainState | None", counters: Counters) -> None:
        """Copy what is there of `items` into chunks that are not those of `beside`, and go on from `counters`."""
        held: dict[tuple[str, str], list[StateItem]] = {}
        for item in items:
            held.setdefault((item.name, item.kind), []).append(item)
        for chunk in self._chunks_beside(beside):
            for piece in chunk.pieces:
                piece.optimizer.updates.fill_(counters.updates)
            for item in chunk.items():
                for other in held.get((item.name, item.kind), ()):
                    common = item.box.overlap(other.box)
                    if common is not None:
                        item.part(common).tensor.copy_(other.part(common).tensor)
            chunk.changed()
        self.committed, self.skipped, self.decided_in = counters.committed, counters.skipped, counters.decided_in
        self.scale = counters.scale

    def _chunks_beside(self, old: "TrainState | None") -> Iterator[Chunk]:
        shared = {id(chunk) for chunk in old.chunks.values()} if old is not None else set()
        return (chunk for chunk in self.chunks.values() if id(chunk) not in shared)

    @property
    def counters(self) -> Counters:
        updates = {int(piece.optimizer.updates) for piece in self._pieces}
        return Counters(
            committed=self.committed,
            skipped=self.skipped,
            decided_in=self.decided_in,
            updates=updates.pop() if len(updates) == 1 else -1,
            scale=self.scale,
        )

    def zero_grad(self) -> None:
        for chunk in self.chunks.values():
            chunk.model.flat.zero_grad()

    @property
    def kinds(self) -> tuple[str, ...]:
        """param, and one for each moment."""
        return ("param", *next(self._pieces).optimizer.moments)

    @property
    def is_cut(self) -> bool:
        """Whether weights have to be gathered from pieces."""
        return self.seat.cut is not None

    @property
    def _pieces(self) -> Iterator[HeldPiece]:
        return (piece for chunk in self.chunks.values() for piece in chunk.pieces)

    def items(self) -> Iterator[StateItem]:
        """Every box held, in all its kinds."""
        for chunk in self.chunks.values():
            yield from chunk.items()

    @property
    def unsent_norm(self) -> float:
        """Of what coded sums have left."""
        norms = (chunk.coding.unsent.norm for chunk in self.chunks.values() if chunk.coding is not None)
        return sum(norm**2 for norm in norms) ** 0.5

    @property
    def overdue_norm(self) -> float:
        """Of what the newest step would have sent, had it not been skipped."""
        return self.unsent_norm if any(c.coding and c.coding.unsent.was_due for c in self.chunks.values()) else 0.0

    def check_sent(self, *, before: str) -> None:
        """Raises: RaymegaBug if coded sums have left anything, which is neither saved nor moved, and was not due."""
        found = (chunk.coding.unsent for chunk in self.chunks.values() if chunk.coding is not None)
        if any(not unsent.is_empty and not unsent.was_due for unsent in found):
            raise RaymegaBug(
                f"Step {self.committed} was summed with fewer bits right {before}: what it has left, of norm "
                f"{self.unsent_norm:.3g}, would be lost. The step before has to be summed in full.",
                step=self.committed,
            )

    def gradients(self, pieces: Collection[int]) -> Iterator[tuple[Sequence[HeldParam], torch.Tensor]]:
        """Of these pieces, chunk by chunk: what they hold, and the reduced gradient of it."""
        for chunk in self.chunks.values():
            for piece in chunk.pieces:
                if piece.index in pieces:
                    yield piece.params, chunk.grad_of(piece)


def kinds_of(config: Config) -> tuple[str, ...]:
    """Kinds of state that a run of `config` has."""
    return ("param",) if config.training.optimizer == "sgd" else ("param", "exp_avg", "exp_avg_sq")


def checkpoint_tensors(config: Config) -> tuple[TensorInfo, ...]:
    """Every tensor that a checkpoint of `config` holds."""
    return tensors_of(specs_of(config), kinds=kinds_of(config))


def shares_of(config: Config, *, world: World) -> tuple[Share, ...]:
    """What this worker writes of a checkpoint."""
    specs = specs_of(config)
    shares = assign(holdings(specs, world.plan), shapes={spec.name: spec.shape for spec in specs})
    return shares[world.plan.mesh.rank(world.coord)]


def _assemble(
    config: Config, *, world: World, device: torch.device, first_values: bool, old: TrainState | None
) -> TrainState:
    seat = Seat.of(world.plan, world.me)
    kept = old if old is not None and old.seat.holds_as(seat) else None
    team = kept.team if kept is not None else GroupPort(world.team)
    found = {kept.seat.chunks[v]: chunk for v, chunk in kept.chunks.items()} if kept is not None else {}
    chunks = {
        v: found[at]
        if at in found
        else make_chunk(config, at=at, cut=seat.cut, team=team, first_values=first_values, device=device)
        for v, at in seat.chunks.items()
    }
    state = TrainState(seat=seat, chunks=chunks, team=team, scale=first_scale(config.training))
    state.rejoin(world)
    return state
