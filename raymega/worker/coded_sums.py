"""The sum of gradients over the replicas with fewer bits: everyone sends its own to everyone, once.

    w0   value --encode--> [ scales | codes | plain ]  --all-gather-->  everyone decodes all of them and adds them up
    w1   value --encode--> [ scales | codes | plain ]                   the same bytes in rank order: the same bits
         left = value - what was sent                                   out of place: a sum that breaks is made again

Matrices that no other shard of the team holds are coded; the rest is plain, since its copies have to stay equal. With n
replicas a member sends n - 1 codes of what it has, where a plain sum sends about 8 (n - 1) / n bytes an element: int8
sends less up to seven replicas, 16 bits up to three.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from raymega.comm.codec import add_decoded, encode
from raymega.comm.coded import Codec, encoded_bytes
from raymega.comm.group import Group
from raymega.layout.tp_split import replicas
from raymega.model.flat_params import FlatParams
from raymega.train.unsent import Unsent


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """The stretch [start, end) of a flat gradient, coded as one, and where it lies in a message."""

    start: int
    end: int
    codec: Codec
    at: int

    @property
    def num_bytes(self) -> int:
        return encoded_bytes(self.end - self.start, codec=self.codec)

    def within(self, message: Tensor) -> Tensor:
        """Its bytes of a message."""
        return message[self.at : self.at + self.num_bytes]


def own_matrices(flat: FlatParams, *, tp: int) -> tuple[tuple[int, int], ...]:
    """Half-open ranges of what no other shard holds, neighbours joined."""
    ranges: list[tuple[int, int]] = []
    for param in flat.params:
        if not param.spec.decays or replicas(param.spec, tp=tp) > 1:
            continue
        if ranges and ranges[-1][1] == param.start:
            ranges[-1] = (ranges[-1][0], param.end)
        else:
            ranges.append((param.start, param.end))
    return tuple(ranges)


def pieces_of(stretch: tuple[int, int], *, coded: tuple[tuple[int, int], ...], codec: Codec) -> tuple[Piece, ...]:
    """Cut a stretch where it enters and leaves what is `coded`; the rest is plain."""
    at, found = 0, list[Piece]()
    for start, end, inside in _cuts(stretch, coded):
        found.append(Piece(start=start, end=end, codec=codec if inside else "fp32", at=at))
        at += found[-1].num_bytes
    return tuple(found)


def _cuts(stretch: tuple[int, int], ranges: tuple[tuple[int, int], ...]) -> Iterator[tuple[int, int, bool]]:
    at, last = stretch
    for first, end in ranges:
        start, stop = max(first, at), min(end, last)
        if start < stop:
            if at < start:
                yield at, start, False
            yield start, stop, True
            at = stop
    if at < last:
        yield at, last, False


@dataclass(frozen=True, slots=True, kw_only=True)
class Coding:
    """How a chunk's gradient is sent, and what is left of it. `ranges`: what is coded; the rest is plain."""

    codec: Codec
    ranges: tuple[tuple[int, int], ...]
    unsent: Unsent

    @classmethod
    def of(cls, flat: FlatParams, *, tp: int, codec: Codec) -> "Coding":
        return cls(codec=codec, ranges=own_matrices(flat, tp=tp), unsent=Unsent.none_of(flat.grad))

    def start_sum(
        self, grad: Tensor, *, stretch: tuple[int, int], ring: Group, scale: float, full: bool, out: Tensor
    ) -> "CodedSum":
        """Begin the sum of a stretch of the flat `grad`; the others of a step are as `full`."""
        self.unsent.leaves = not full
        pieces = pieces_of(stretch, coded=() if full else self.ranges, codec=self.codec)
        return CodedSum(grad, pieces=pieces, unsent=self.unsent, scale=scale, out=out, ring=ring)


class CodedSum:
    """One sum, begun: coded at once, exchanged when it is waited for. All members wait in the same order."""

    def __init__(
        self, grad: Tensor, *, pieces: tuple[Piece, ...], unsent: Unsent, scale: float, out: Tensor, ring: Group
    ) -> None:
        """`grad`, `out`: flat gradients, of which the pieces are summed. `scale`: of the loss."""
        self._pieces, self._scale, self._out, self._ring = pieces, scale, out, ring
        self._message = torch.empty(pieces[-1].at + pieces[-1].num_bytes, dtype=torch.uint8, device=grad.device)
        for piece in pieces:
            part = slice(piece.start, piece.end)
            encode(
                grad[part], residual=unsent.held[part], scale=scale, codec=piece.codec,
                wire=piece.within(self._message), left=unsent.left[part],
            )  # fmt: skip

    def wait(self) -> None:
        messages = self._message.new_empty((self._ring.size, self._message.numel()))
        self._ring.all_gather(messages, self._message)
        for piece in self._pieces:
            total = self._out[piece.start : piece.end]
            total.zero_()
            for message in messages:
                add_decoded(piece.within(message), codec=piece.codec, out=total)
            total.mul_(self._scale)
