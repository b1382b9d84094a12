"""How a boundary message lies in memory: one flat buffer, so that it travels as one message.

    | header: 8 x int64                                                             | payload          |
    | magic | generation | step | microbatch | chunk | direction | elements | bytes | elements x dtype |
    0                                                                               64

The payload starts on a cache line, so the receiver uses it where it lies. The header is checked on receipt: the bytes
of one micro-batch, step or generation never pass as those of another.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Literal

import torch

from raymega.errors import StaleMessage

HEADER_BYTES = 64
_MAGIC = 0x7261796D65676131  # "raymega1"

Direction = Literal["F", "B"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What one boundary tensor is: an activation on its way down (`F`), or a gradient on its way up (`B`).

    Args:
        step: index of the step; evaluation batches use steps of their own (negative ones, say).
        microbatch: index within the step, over all replicas.
        chunk: virtual stage that produced it.
    """

    step: int
    microbatch: int
    chunk: int
    direction: Direction

    def __str__(self) -> str:
        return f"step {self.step} {self.chunk}{self.direction}{self.microbatch}"

    @property
    def tag(self) -> int:
        """One chunk and direction are a stream; streams between the same pair do not wait for each other."""
        return 2 * self.chunk + (self.direction == "B")

    def header(self, *, generation: int, num_elements: int, num_bytes: int) -> tuple[int, ...]:
        direction = int(self.direction == "B")
        return (_MAGIC, generation, self.step, self.microbatch, self.chunk, direction, num_elements, num_bytes)


def framed_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    """Size of a buffer that carries a tensor."""
    return HEADER_BYTES + math.prod(shape) * dtype.itemsize


def write_payload(buffer: torch.Tensor, x: torch.Tensor) -> None:
    """Copy `x` into a buffer of `framed_bytes`."""
    buffer[HEADER_BYTES:].view(x.dtype).view(x.shape).copy_(x.detach())


def write_header(buffer: torch.Tensor, message: Message, *, generation: int, itemsize: int) -> None:
    """Stamp the buffer; a message that is sent again is stamped with the generation that sends it."""
    num_bytes = buffer.numel() - HEADER_BYTES
    fields = message.header(generation=generation, num_elements=num_bytes // itemsize, num_bytes=num_bytes)
    buffer[:HEADER_BYTES].view(torch.int64).copy_(torch.tensor(fields, dtype=torch.int64))


def header_of(buffer: torch.Tensor) -> tuple[int, ...]:
    """What a buffer says that it carries."""
    return tuple(buffer[:HEADER_BYTES].view(torch.int64).tolist())


def header_due(
    message: Message, *, generation: int, shape: tuple[int, ...], dtype: torch.dtype
) -> tuple[int, ...]:  # fmt: skip
    """What a buffer has to say that carries `message` of `generation` in this shape and dtype."""
    size = math.prod(shape)
    return message.header(generation=generation, num_elements=size, num_bytes=size * dtype.itemsize)


def stale(*, due: tuple[int, ...], got: tuple[int, ...]) -> StaleMessage:
    """The error for a buffer that says `got`."""
    return StaleMessage(
        f"expected {_tell(due)}, got {_tell(got)}. A message is used only for the very pass it was made for; "
        "leave the generation and have it sent again.",
        expected=due,
        got=got,
    )


def payload_of(buffer: torch.Tensor, *, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """The tensor in a buffer, where it lies."""
    return buffer[HEADER_BYTES:].view(dtype).view(shape)


def _tell(header: tuple[int, ...]) -> str:
    magic, generation, step, microbatch, chunk, direction, elements, _ = header
    if magic != _MAGIC:
        return "bytes that are no boundary message"
    return f"generation {generation} step {step} {chunk}{'FB'[direction % 2]}{microbatch} of {elements} elements"


class BufferPool:
    """Flat byte buffers that are used again, so that a step in its stride allocates nothing."""

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        self.device = torch.device(device)
        self._free: defaultdict[int, list[torch.Tensor]] = defaultdict(list)

    def take(self, num_bytes: int) -> torch.Tensor:
        free = self._free[num_bytes]
        return free.pop() if free else torch.empty(num_bytes, dtype=torch.uint8, device=self.device)

    def give(self, buffer: torch.Tensor) -> None:
        """Nobody may use `buffer` or a view of it any more."""
        self._free[buffer.numel()].append(buffer)

    def clear(self) -> None:
        """Free what is not in use: shapes change with the plan."""
        self._free.clear()
