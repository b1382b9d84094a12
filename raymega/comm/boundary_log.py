"""The boundary tensors that a worker has sent in a step, kept until nobody can need them again.

    send 0F5 ---> copied in here ---> travels from here         (the producer may free its own at once)
    peer dies --> its work goes to another, which is sent 0F5 from here, stamped with the new generation
    released  --> the buffers are used again

The log owns its buffers: nothing writes to one, frees it or uses it again before `release`. A log that is `off` keeps
them while they travel, and no longer; a send needs them anyway, so that keeping costs no copy.
"""

from typing import Literal

import torch

from raymega.comm.frames import BufferPool, Message, framed_bytes, write_payload
from raymega.errors import StateError


class BoundaryLog:
    """A worker's log; outlives generations.

    Args:
        device: where the tensors are made and sent from.
        kept: the memory that they are kept in.
    """

    def __init__(
        self, *, device: torch.device | str = "cpu", kept: Literal["device", "host", "off"] = "device"
    ) -> None:
        self._device, self.is_off = torch.device(device), kept == "off"
        self._pool = BufferPool(device="cpu" if kept == "host" else device)
        self.num_bytes = 0  # kept for messages that are not released
        self.peak_bytes = 0
        self._kept: dict[Message, torch.Tensor] = {}
        self._itemsize: dict[Message, int] = {}
        self._travelling: set[Message] = set()

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
            self._drop(message)
        buffer = self._pool.take(framed_bytes(tuple(x.shape), x.dtype))
        write_payload(buffer, x)
        self._kept[message], self._itemsize[message] = buffer, x.element_size()
        self.num_bytes += buffer.numel()
        self.peak_bytes = max(self.peak_bytes, self.num_bytes)
        return buffer

    def find(self, message: Message) -> tuple[torch.Tensor, int]:
        """The buffer of `message`, or a copy where it is to be sent from, and the bytes of its elements.

        Raises: StateError if it is not held.
        """
        if message not in self._kept:
            raise StateError(
                f"the boundary log does not hold {message}; it was released or never sent here. "
                "Have its producer compute it again.",
                wanted=str(message),
            )
        return self._kept[message].to(self._device), self._itemsize[message]

    def lend(self, message: Message) -> None:
        """It travels: its buffer may not be released."""
        self._travelling.add(message)

    def returned(self, message: Message) -> None:
        """It travels no more."""
        self._travelling.discard(message)
        if self.is_off:
            self._drop(message)

    def release(self, *, through_step: int) -> None:
        """Use the buffers of all steps up to `through_step` again. None of them may be travelling."""
        for message in [m for m in self._kept if m.step <= through_step]:
            assert message not in self._travelling, f"{message} is being sent"
            self._drop(message)

    def _drop(self, message: Message) -> None:
        del self._itemsize[message]
        buffer = self._kept.pop(message)
        self.num_bytes -= buffer.numel()
        self._pool.give(buffer)

    def forget(self) -> None:
        """Release all, and free the buffers that are not in use: shapes change with the plan."""
        self.release(through_step=max((message.step for message in self._kept), default=0))
        self._pool.clear()
