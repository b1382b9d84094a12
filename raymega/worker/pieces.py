"""The pieces of a chunk's state: parameters in fp32, moments, and the reduced gradient that updates them.

    whole     one piece: the flat buffers of the model themselves
    sharded   flat      [ wq        | wk    | wo        |  norm  ]      rows of every parameter, cut over the replicas
              piece 0   [ wq | wk | wo ][ norm ]                        buffers of its own, decayed rows first
              piece 1   [ wq | wk | wo ][ norm ]

A piece has the same buffers whoever holds it, and is updated by the same calls: so its holders get the same bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch

from raymega.config.schema import TrainingConfig
from raymega.layout.param_layout import piece_box
from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box
from raymega.model.flat_params import FlatParams, LocalParam, aligned
from raymega.train.optimizer import Optimizer, build_optimizer
from raymega.train.state_items import HeldParam


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """A parameter's rows in a piece.

    Args:
        box: what they are of the whole tensor.
        first: where they begin in the model's flat buffers.
        start: where they begin in the piece's.
    """

    param: LocalParam
    box: Box
    first: int
    start: int

    @property
    def spec(self) -> ParamSpec:
        return self.param.spec

    @property
    def counted(self) -> bool:
        return self.param.counted

    @property
    def end(self) -> int:
        return self.start + self.box.num_elements

    def view(self, flat: torch.Tensor) -> torch.Tensor:
        """These rows in a buffer of the piece."""
        return flat[self.start : self.end].view(self.box.sizes)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """These rows in a flat buffer of the model, as a line."""
        return flat[self.first : self.first + self.box.num_elements]

    def line(self, flat: torch.Tensor) -> torch.Tensor:
        """These rows in a buffer of the piece, as a line."""
        return flat[self.start : self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceLayout:
    """How a piece lies in its buffers; decayed rows fill [0, num_decayed)."""

    rows: tuple[Rows, ...]
    num_decayed: int
    num_elements: int


def piece_layout(flat: FlatParams, *, piece: int, pieces: int) -> PieceLayout:
    """The rows of every parameter of a chunk that belong to `piece`."""
    decayed = _rows(flat, piece=piece, pieces=pieces, decays=True, start=0)
    num_decayed = aligned(decayed[-1].end if decayed else 0)
    vectors = _rows(flat, piece=piece, pieces=pieces, decays=False, start=num_decayed)
    end = aligned(vectors[-1].end if vectors else num_decayed)
    return PieceLayout(rows=(*decayed, *vectors), num_decayed=num_decayed, num_elements=end)


def _rows(flat: FlatParams, *, piece: int, pieces: int, decays: bool, start: int) -> tuple[Rows, ...]:
    found: list[Rows] = []
    for param in flat.params:
        box = piece_box(param.box, piece=piece, pieces=pieces)
        if param.spec.decays == decays and box is not None:
            first = param.start + (box.offsets[0] - param.box.offsets[0] if box.sizes else 0) * prod(param.shape[1:])
            found.append(Rows(param=param, box=box, first=first, start=start))
            start += box.num_elements
    return tuple(found)


@dataclass(slots=True, kw_only=True)
class HeldPiece:
    """A piece that a worker holds. `reduced`: its gradient; None: it is in the chunk's flat buffer."""

    index: int
    params: Sequence[HeldParam]
    data: torch.Tensor
    optimizer: Optimizer
    reduced: torch.Tensor | None

    @property
    def total(self) -> torch.Tensor:
        """The gradient of a piece that has buffers of its own."""
        assert self.reduced is not None, "a piece that is cut has a buffer for its gradient"
        return self.reduced


def whole_piece(training: TrainingConfig, *, flat: FlatParams) -> HeldPiece:
    """The only piece of a chunk that is not cut."""
    optimizer = build_optimizer(training, data=flat.data, num_decayed=flat.num_decayed)
    return HeldPiece(index=0, params=flat.params, data=flat.data, optimizer=optimizer, reduced=None)


def cut_piece(training: TrainingConfig, *, index: int, layout: PieceLayout, device: torch.device) -> HeldPiece:
    """A piece in buffers of its own, of zeros."""
    data, reduced = (torch.zeros(layout.num_elements, device=device) for _ in range(2))
    optimizer = build_optimizer(training, data=data, num_decayed=layout.num_decayed)
    return HeldPiece(index=index, params=layout.rows, data=data, optimizer=optimizer, reduced=reduced)
