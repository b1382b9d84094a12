"""The boundary tensors that a worker has sent in a step, kept until nobody can need them again.

    send 0F5 ---> copied in here ---> travels from here         (the producer may free its own at once)
    peer dies --> its work goes to another, which is sent 0F5 from here, stamped with the new generation
    released  --> the buffers are used again

The log owns its buffers: nothing writes to one, frees it or uses it again before `release`.
"""

import torch

from raymega.comm.frames import BufferPool, Message, framed_bytes, write_payload
from raymega.errors import StateError


class BoundaryLog:
    """A worker's log; outlives generations."""

    def __init__(self, *, device: torch.device | str = "cpu") -> None:
        self._pool = BufferPool(device=device)
        self._kept: dict[Message, torch.Tensor] = {}
        self._itemsize: dict[Message, int] = {}
        self._travelling: set[Message] = set()

    @property
    def num_bytes(self) -> int:
        """Bytes kept for messages that are not released."""
        return sum(buffer.numel() for buffer in self._kept.values())

    @property
    def messages(self) -> tuple[Message, ...]:
        """What it holds, in the order of sending."""
        return tuple(self._kept)

    def record(self, message: Message, x: torch.Tensor) -> torch.Tensor:
        """Copy `x` into a buffer of its own and return that, framed but not stamped.

        A repeated forward makes the same message again: it takes the place of the first.
        """
        assert message not in self._travelling, f"{message} is being sent"
        if message in self._kept:
            self._pool.give(self._kept.pop(message))
        buffer = self._pool.take(framed_bytes(tuple(x.shape), x.dtype))
        write_payload(buffer, x)
        self._kept[message], self._itemsize[message] = buffer, x.element_size()
        return buffer

    def find(self, message: Message) -> tuple[torch.Tensor, int]:
        """The buffer of `message` and the bytes of its elements. Raises: StateError if it is not held."""
        if message not in self._kept:
            raise StateError(
                f"the boundary log does not hold {message}; it was released or never sent here. "
                "Have its producer compute it again.",
                wanted=str(message),
            )
        return self._kept[message], self._itemsize[message]

    def lend(self, message: Message) -> None:
        """It travels: its buffer may not be released."""
        self._travelling.add(message)

    def returned(self, message: Message) -> None:
        """It travels no more."""
        self._travelling.discard(message)

    def release(self, *, through_step: int) -> None:
        """Use the buffers of all steps up to `through_step` again. None of them may be travelling."""
        for message in [m for m in self._kept if m.step <= through_step]:
            assert message not in self._travelling, f"{message} is being sent"
            del self._itemsize[message]
            self._pool.give(self._kept.pop(message))

    def trim(self) -> None:
        """Free the buffers that are not in use: shapes change with the plan."""
        self._pool.clear()
