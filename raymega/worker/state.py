"""What a worker holds of the run: its chunks of the model, their optimizers, and how many steps they have seen.

    chunk 0   flat parameters | accumulated gradients | moments        every flat buffer of one layout
    chunk 1   ...
    committed steps, skipped steps, loss scale                         everything else follows from these

All of it is listed by `items` under (name, kind, box); what is not listed may not influence the next step.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from raymega.checkpoint.load import load, load_params
from raymega.checkpoint.state_item import StateItem
from raymega.comm.codec import Codec
from raymega.comm.port import GroupPort
from raymega.config.schema import Config
from raymega.errors import RaymegaBug
from raymega.layout.checkpoint_layout import Share, assign
from raymega.layout.checkpoint_manifest import TensorInfo, tensors_of
from raymega.layout.param_layout import holdings
from raymega.model.stage import StageModel, blank_stage, build_stage, specs_of
from raymega.plan.plan import Plan, WorkerId
from raymega.train.loss_scale import UNSCALED, LossScale, first_scale
from raymega.train.optimizer import Optimizer, build_optimizer
from raymega.train.state_items import SCALAR, state_items
from raymega.worker.coded_sums import Coding
from raymega.worker.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSeat:
    """Which blocks a chunk holds (half-open), and which ends of the model."""

    layers: tuple[int, int]
    first: bool
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What decides which boxes a worker holds: its chunks by virtual stage, and its shard of a team of `tp`."""

    chunks: Mapping[int, ChunkSeat]
    tp: int
    shard: int

    @classmethod
    def of(cls, plan: Plan, worker: WorkerId) -> "Seat":
        coord, end = plan.coord_of(worker), len(plan.layers) - 1
        chunks = {v: ChunkSeat(layers=plan.layers[v], first=v == 0, last=v == end) for v in plan.chunks_of(coord.stage)}
        return cls(chunks=chunks, tp=plan.mesh.tp, shard=coord.shard)

    def holds_as(self, other: "Seat") -> bool:
        """Whether the chunks that both have hold the same boxes."""
        return (self.tp, self.shard) == (other.tp, other.shard)


@dataclass(slots=True, kw_only=True)
class Chunk:
    """One virtual stage with its optimizer.

    Args:
        reduced: where gradient sums go, out of place; None: nothing to sum.
        codec: with which replicas send each other gradients, where they do so with fewer bits.
        coding: how, where they do now.
    """

    model: StageModel
    optimizer: Optimizer
    reduced: torch.Tensor | None
    codec: Codec | None = None
    coding: Coding | None = None

    @property
    def reduced_grad(self) -> torch.Tensor:
        """What the optimizer reads: the sum over the plan, which is the accumulator itself where nobody shares."""
        return self.model.flat.grad if self.reduced is None else self.reduced

    def items(self) -> Iterator[StateItem]:
        """Every box held, in all its kinds. The optimizer's counter is derived, so it is not among them."""
        for view in state_items(self.model.params, data=self.model.flat.data, optimizer=self.optimizer):
            if view.box != SCALAR:
                yield StateItem(name=view.name, kind=view.kind, shape=view.shape, box=view.box, tensor=view.tensor)

    def share(self, world: World) -> None:
        """Have a place for sums where somebody shares this chunk's gradients in `world`."""
        shared = world.ring.size > 1 or self.model.has_partial_grads or self.model.tied is not None
        if shared and self.reduced is None:
            self.reduced = torch.empty_like(self.model.flat.grad)
        self._code(world)

    def _code(self, world: World) -> None:
        """Send fewer bits where the config wants it; what is left of earlier sums is sent in any case."""
        wanted = self.codec is not None and world.ring.size > 1 and world.is_coded
        if wanted and self.coding is None and self.codec is not None:
            self.coding = Coding.of(self.model.flat, tp=world.plan.mesh.tp, codec=self.codec)
        elif not wanted and self.coding is not None and self.coding.unsent.is_empty:
            self.coding = None


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
        return _assemble(config, world=world, device=device, make=build_stage, old=None)

    @classmethod
    def blank(
        cls, config: Config, *, world: World, device: torch.device, old: "TrainState | None" = None
    ) -> "TrainState":
        """Zeros, but for the chunks of `old` that hold what is wanted: those are in both, and stay as they are."""
        return _assemble(config, world=world, device=device, make=blank_stage, old=old)

    def rejoin(self, world: World) -> None:
        """The same state in another membership."""
        self.team.attach(world.team)
        for chunk in self.chunks.values():
            chunk.share(world)

    def load(self, uri: str, *, config: Config) -> None:
        """Fill everything from a checkpoint; it must hold this state, no more and no less."""
        load(uri, items=tuple(self.items()), expected=tensors_of(specs_of(config), kinds=self.kinds))

    def load_params(self, uri: str, *, config: Config) -> None:
        """Take a checkpoint's parameters only."""
        load_params(uri, items=tuple(self.items()), expected=tensors_of(specs_of(config), kinds=self.kinds))

    def begin_at(self, *, committed: int, skipped: int, scale: LossScale | None = None) -> None:
        """Set the counters; the optimizers' follow from them. `scale` None: that of the first step."""
        self.scale = self.scale if scale is None else scale
        self.committed, self.skipped, self.decided_in = committed, skipped, 0
        for chunk in self.chunks.values():
            chunk.optimizer.updates.fill_(committed - skipped)
            chunk.model.flat.cast()

    def take_over(self, items: Iterable[StateItem], *, beside: "TrainState | None", counters: Counters) -> None:
        """Copy what is there of `items` into chunks that are not those of `beside`, and go on from `counters`."""
        held: dict[tuple[str, str], list[StateItem]] = {}
        for item in items:
            held.setdefault((item.name, item.kind), []).append(item)
        for chunk in self._chunks_beside(beside):
            chunk.optimizer.updates.fill_(counters.updates)
            for item in chunk.items():
                for other in held.get((item.name, item.kind), ()):
                    common = item.box.overlap(other.box)
                    if common is not None:
                        item.part(common).tensor.copy_(other.part(common).tensor)
            chunk.model.flat.cast()
        self.committed, self.skipped, self.decided_in = counters.committed, counters.skipped, counters.decided_in
        self.scale = counters.scale

    def _chunks_beside(self, old: "TrainState | None") -> Iterator[Chunk]:
        shared = {id(chunk) for chunk in old.chunks.values()} if old is not None else set()
        return (chunk for chunk in self.chunks.values() if id(chunk) not in shared)

    @property
    def counters(self) -> Counters:
        updates = {int(chunk.optimizer.updates) for chunk in self.chunks.values()}
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
        return ("param", *next(iter(self.chunks.values())).optimizer.moments)

    def items(self) -> Iterator[StateItem]:
        """Every box held, in all its kinds."""
        for chunk in self.chunks.values():
            yield from chunk.items()

    @property
    def unsent_norm(self) -> float:
        """Of what coded sums have left."""
        norms = (chunk.coding.unsent.norm for chunk in self.chunks.values() if chunk.coding is not None)
        return sum(norm**2 for norm in norms) ** 0.5

    def check_sent(self, *, before: str) -> None:
        """Raises: RaymegaBug if coded sums have left anything, which is neither saved nor moved."""
        if any(chunk.coding is not None and not chunk.coding.unsent.is_empty for chunk in self.chunks.values()):
            raise RaymegaBug(
                f"Step {self.committed} was summed with fewer bits right {before}: what it has left, of norm "
                f"{self.unsent_norm:.3g}, would be lost. The step before has to be summed in full.",
                step=self.committed,
            )

    @property
    def num_counted(self) -> tuple[int, int]:
        """(boxes, elements) that count for the norm in this worker's replica."""
        counted = [p for c in self.chunks.values() for p in c.model.params if p.counted and p.box.num_elements]
        return len(counted), sum(param.box.num_elements for param in counted)


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
    config: Config, *, world: World, device: torch.device, make: Callable[..., StageModel], old: TrainState | None
) -> TrainState:
    seat = Seat.of(world.plan, world.me)
    kept = old if old is not None and old.seat.holds_as(seat) else None
    team = kept.team if kept is not None else GroupPort(world.team)
    found = {kept.seat.chunks[v]: chunk for v, chunk in kept.chunks.items()} if kept is not None else {}
    chunks = {
        v: found[at] if at in found else _chunk(config, at=at, team=team, make=make, device=device)
        for v, at in seat.chunks.items()
    }
    state = TrainState(seat=seat, chunks=chunks, team=team, scale=first_scale(config.training))
    state.rejoin(world)
    return state


def _chunk(
    config: Config, *, at: ChunkSeat, team: GroupPort, make: Callable[..., StageModel], device: torch.device
) -> Chunk:
    assert config.run.seed is not None, "the seed is drawn before workers start"
    model = make(
        config, layers=at.layers, first=at.first, last=at.last, team=team if team.size > 1 else None,
        seed=config.run.seed, device=device,
    )  # fmt: skip
    flat = model.flat
    return Chunk(
        model=model,
        optimizer=build_optimizer(config.training, data=flat.data, num_decayed=flat.num_decayed),
        reduced=None,
        codec=None if config.parallelism.grad_compression == "none" else config.parallelism.grad_compression,
    )
