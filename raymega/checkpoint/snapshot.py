"""The copy of a worker's state at a step's boundary, in host memory that is taken once and used for every save."""

from collections.abc import Iterable, Sequence

import torch

from raymega.checkpoint.state_item import StateItem
from raymega.layout.checkpoint_layout import Share
from raymega.layout.shard_box import Box

_ALIGN_BYTES = 64


def items_to_write(items: Iterable[StateItem], shares: Iterable[Share]) -> tuple[StateItem, ...]:
    """The parts of `items` that this worker is to write, in all their kinds; a tensor that it holds twice, once."""
    wanted: dict[str, list[Box]] = {}
    for share in shares:
        wanted.setdefault(share.name, []).append(share.box)
    parts = ((item, item.box.overlap(box)) for item in items for box in wanted.get(item.name, ()))
    return tuple({(item.name, item.kind, box): item.part(box) for item, box in parts if box is not None}.values())


class Snapshot:
    """A copy of some items in host memory that is reused from save to save."""

    def __init__(self) -> None:
        self._buffer = torch.empty(0, dtype=torch.uint8)
        self.items: tuple[StateItem, ...] = ()

    def reserve(self, items: Sequence[StateItem]) -> None:
        """Take the memory for a copy of `items`, so that the first copy does not wait for the system's pages."""
        size = sum(_padded(item) for item in items)
        if size > self._buffer.numel():
            on_gpu = any(item.tensor.is_cuda for item in items)
            self._buffer = torch.empty(size, dtype=torch.uint8, pin_memory=on_gpu).zero_()

    def take(self, items: Sequence[StateItem]) -> None:
        """Copy the items as they are now; `self.items` are the contiguous copies, wide types first."""
        self.lay_out(items)
        for copy, item in zip(self.items, _in_order(items), strict=True):
            copy.tensor.copy_(item.tensor, non_blocking=True)
        for device in {item.tensor.device for item in items if item.tensor.is_cuda}:
            torch.cuda.synchronize(device)

    def lay_out(self, items: Sequence[StateItem]) -> None:
        """Make places for copies of `items`, whose bytes come from elsewhere; `payload` is where."""
        self.reserve(items)
        copies, offset = [], 0
        for item in _in_order(items):
            size = item.tensor.numel() * item.tensor.element_size()
            place = self._buffer[offset : offset + size].view(item.tensor.dtype).view(item.tensor.shape)
            copies.append(StateItem(name=item.name, kind=item.kind, shape=item.shape, box=item.box, tensor=place))
            offset += _padded(item)
        self.items = tuple(copies)

    @property
    def payload(self) -> torch.Tensor:
        """The bytes of all items, in their order."""
        return self._buffer[: sum(_padded(item) for item in self.items)]


def _in_order(items: Iterable[StateItem]) -> list[StateItem]:
    return sorted(items, key=lambda i: (-i.tensor.element_size(), i.name, i.kind, i.box))


def _padded(item: StateItem) -> int:
    return -(-item.tensor.numel() * item.tensor.element_size() // _ALIGN_BYTES) * _ALIGN_BYTES
