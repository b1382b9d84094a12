"""One virtual stage as a worker holds it: the model, whole, and the state that it is made of, whole or in pieces.

model    weights | accumulated gradients                     always whole
pieces   fp32 parameters | moments | reduced gradient        the flat buffers themselves, or rows of every parameter
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from raymega.checkpoint.state_item import StateItem
from raymega.comm.coded import Codec
from raymega.comm.port import GroupPort
from raymega.config.schema import Config
from raymega.model.seeding import fill_first_values
from raymega.model.stage import StageModel, blank_stage, build_stage
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.shards import num_pieces, pieces_of
from raymega.train.state_items import SCALAR, state_items
from raymega.worker.coded_sums import Coding
from raymega.worker.pieces import HeldPiece, PieceLayout, cut_piece, piece_layout, whole_piece
from raymega.worker.world import World


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSeat:
    """Which blocks a chunk holds (half-open), and which ends of the model."""

    layers: tuple[int, int]
    first: bool
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """Of how many pieces of the state which are held."""

    num_pieces: int
    held: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """What decides which boxes a worker holds: its chunks by virtual stage, its shard of a team of `tp`, its pieces.

    `cut`: None: the state of a chunk is whole.
    """

    chunks: Mapping[int, ChunkSeat]
    tp: int
    shard: int
    cut: Cut | None = None

    @classmethod
    def of(cls, plan: Plan, worker: WorkerId) -> "Seat":
        coord, end = plan.coord_of(worker), len(plan.layers) - 1
        chunks = {v: ChunkSeat(layers=plan.layers[v], first=v == 0, last=v == end) for v in plan.chunks_of(coord.stage)}
        held = pieces_of(plan, replica=coord.replica, stage=coord.stage)
        cut = Cut(num_pieces=num_pieces(plan, stage=coord.stage), held=held)
        is_whole = plan.shard_optimizer == "none"
        return cls(chunks=chunks, tp=plan.mesh.tp, shard=coord.shard, cut=None if is_whole else cut)

    def holds_as(self, other: "Seat") -> bool:
        """Whether the chunks that both have hold the same boxes."""
        return replace(self, chunks={}) == replace(other, chunks={})


@dataclass(slots=True, kw_only=True)
class Chunk:
    """See above.

    Args:
        layouts: of all pieces, where the state is cut.
        reduced: where gradient sums of a whole state go, out of place; None: nothing to sum, or pieces have them.
        is_whole: its weights are those of the state; false: they are to be gathered first.
        codec: with which replicas send each other gradients, where they do so with fewer bits.
        coding: how, where they do now.
    """

    model: StageModel
    pieces: tuple[HeldPiece, ...]
    layouts: tuple[PieceLayout, ...] = ()
    reduced: torch.Tensor | None = None
    is_whole: bool = True
    codec: Codec | None = None
    coding: Coding | None = None

    @property
    def is_cut(self) -> bool:
        return bool(self.layouts)

    @property
    def is_summed(self) -> bool:
        """Whether its gradients go elsewhere before they are applied."""
        return self.is_cut or self.reduced is not None

    @property
    def reduced_grad(self) -> torch.Tensor:
        """The sum over the plan of a whole state, which is the accumulator itself where nobody shares."""
        return self.model.flat.grad if self.reduced is None else self.reduced

    def grad_of(self, piece: HeldPiece) -> torch.Tensor:
        """What the optimizer of a piece reads."""
        return self.reduced_grad if piece.reduced is None else piece.reduced

    def changed(self) -> None:
        """The state is another one: weights are made of it, at once or by a gather."""
        self.is_whole = not self.is_cut
        if self.is_whole:
            self.model.flat.cast()

    def items(self) -> Iterator[StateItem]:
        """Every box held, in all its kinds. The optimizer's counter is derived, so it is not among them."""
        for piece in self.pieces:
            for view in state_items(piece.params, data=piece.data, optimizer=piece.optimizer):
                if view.box != SCALAR:
                    yield StateItem(name=view.name, kind=view.kind, shape=view.shape, box=view.box, tensor=view.tensor)

    def share(self, world: World) -> None:
        """Have a place for sums where somebody shares this chunk's gradients in `world`."""
        shared = world.ring.size > 1 or self.model.has_partial_grads or self.model.tied is not None
        if shared and self.reduced is None and not self.is_cut:
            self.reduced = torch.empty_like(self.model.flat.grad)
        self._code(world)

    def _code(self, world: World) -> None:
        """Send fewer bits where the config wants it; what is left of earlier sums is sent in any case."""
        wanted = self.codec is not None and world.ring.size > 1 and world.is_coded
        if wanted and self.coding is None and self.codec is not None:
            self.coding = Coding.of(self.model.flat, tp=world.plan.mesh.tp, codec=self.codec)
        elif not wanted and self.coding is not None and self.coding.unsent.is_empty:
            self.coding = None


def make_chunk(
    config: Config, *, at: ChunkSeat, cut: Cut | None, team: GroupPort, first_values: bool, device: torch.device
) -> Chunk:
    """A chunk with first values, or with zeros that are to be written to."""
    assert config.run.seed is not None, "the seed is drawn before workers start"
    seed, make = config.run.seed, build_stage if first_values else blank_stage
    model = make(
        config, layers=at.layers, first=at.first, last=at.last, team=team if team.size > 1 else None, seed=seed,
        device=device, masters=cut is None,
    )  # fmt: skip
    if cut is None:
        codec = None if config.parallelism.grad_compression == "none" else config.parallelism.grad_compression
        return Chunk(model=model, pieces=(whole_piece(config.training, flat=model.flat),), codec=codec)
    layouts = tuple(piece_layout(model.flat, piece=p, pieces=cut.num_pieces) for p in range(cut.num_pieces))
    pieces = tuple(cut_piece(config.training, index=p, layout=layouts[p], device=device) for p in cut.held)
    for piece in pieces if first_values else ():
        for rows in layouts[piece.index].rows:
            fill_first_values(rows.view(piece.data), spec=rows.spec, box=rows.box, seed=seed, model=config.model)
    return Chunk(model=model, pieces=pieces, layouts=layouts)
