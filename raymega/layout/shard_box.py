"""A box: the index range of one named tensor that one worker holds.

    tensor [4, 6]     Box(offsets=(0, 3), sizes=(4, 3))
      . . . # # #
      . . . # # #
      . . . # # #
      . . . # # #

Offsets and sizes are in elements of the whole (global, unpadded) tensor. Parameters, master weights and
optimizer moments are held in the same boxes. A scalar's box has no dimensions and one element.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """`offsets[d] : offsets[d] + sizes[d]` in every dimension d."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.offsets) == len(self.sizes), f"{self} has as many offsets as sizes"
        assert min((*self.offsets, *self.sizes), default=0) >= 0, f"{self} is not negative"

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> "Box":
        """The box that is the tensor itself."""
        return cls((0,) * len(shape), tuple(shape))

    @classmethod
    def parse(cls, text: str) -> "Box":
        """The box that prints as `text`.

        >>> Box.parse("0:4,3:6")
        Box(offsets=(0, 3), sizes=(4, 3))

        Raises: ValueError if no box prints so.
        """
        if text == "scalar":
            return cls((), ())
        ranges = [tuple(int(number) for number in part.split(":")) for part in text.split(",")]
        if any(len(pair) != 2 or not 0 <= pair[0] <= pair[1] for pair in ranges):
            raise ValueError(f"{text!r} is no box; a box reads like 0:4,3:6")
        return cls(tuple(first for first, _ in ranges), tuple(end - first for first, end in ranges))

    @property
    def ends(self) -> tuple[int, ...]:
        return tuple(o + s for o, s in zip(self.offsets, self.sizes, strict=True))

    @property
    def num_elements(self) -> int:
        return prod(self.sizes)

    def overlap(self, other: "Box") -> "Box | None":
        """The common part of two boxes of one tensor; None if they share no element."""
        offsets = tuple(max(a, b) for a, b in zip(self.offsets, other.offsets, strict=True))
        ends = tuple(min(a, b) for a, b in zip(self.ends, other.ends, strict=True))
        if any(e <= o for o, e in zip(offsets, ends, strict=True)):
            return None
        return Box(offsets, tuple(e - o for o, e in zip(offsets, ends, strict=True)))

    def minus(self, other: "Box") -> tuple["Box", ...]:
        """What is left of this box without `other`: disjoint boxes, at most two a dimension.

        >>> [str(rest) for rest in Box.parse("0:4,0:6").minus(Box.parse("0:4,3:6"))]
        ['0:4,0:3']
        """
        common = self.overlap(other)
        if common is None:
            return (self,) if self.num_elements else ()
        rest, core = [], self
        for dim in range(len(self.sizes)):
            first, end = common.offsets[dim], common.ends[dim]
            rest += [core._with_range(dim, core.offsets[dim], first), core._with_range(dim, end, core.ends[dim])]
            core = core._with_range(dim, first, end)
        return tuple(box for box in rest if box.num_elements)

    def rows(self, first: int, end: int) -> "Box":
        """Its part of rows `first:end`, counted from its own first row (dim 0)."""
        return self._with_range(0, self.offsets[0] + first, self.offsets[0] + end)

    def cut(self, *, max_elements: int) -> tuple["Box", ...]:
        """Consecutive parts, in order, each one piece of this box's row-major memory.

        >>> [str(part) for part in Box.parse("0:4,3:6").cut(max_elements=6)]
        ['0:2,3:6', '2:4,3:6']
        """
        if self.num_elements <= max_elements:
            return (self,)
        dim = next(d for d, size in enumerate(self.sizes) if size > 1)
        step = max(1, max_elements // prod(self.sizes[dim + 1 :]))
        starts = range(self.offsets[dim], self.ends[dim], step)
        parts = (self._with_range(dim, start, min(start + step, self.ends[dim])) for start in starts)
        return tuple(piece for part in parts for piece in part.cut(max_elements=max_elements))

    def _with_range(self, dim: int, first: int, end: int) -> "Box":
        offsets = (*self.offsets[:dim], first, *self.offsets[dim + 1 :])
        return Box(offsets, (*self.sizes[:dim], end - first, *self.sizes[dim + 1 :]))

    def within(self, outer: "Box") -> tuple[slice, ...]:
        """Index this box inside a tensor that holds exactly `outer`.

        Raises: AssertionError if `outer` does not contain it.
        """
        assert all(
            o >= oo and e <= oe for o, oo, e, oe in zip(self.offsets, outer.offsets, self.ends, outer.ends, strict=True)
        ), f"{self} lies within {outer}"
        return tuple(
            slice(o - oo, o - oo + s) for o, oo, s in zip(self.offsets, outer.offsets, self.sizes, strict=True)
        )

    def __str__(self) -> str:
        return ",".join(f"{o}:{e}" for o, e in zip(self.offsets, self.ends, strict=True)) or "scalar"


def uncovered(box: Box, *, by: Iterable[Box]) -> tuple[Box, ...]:
    """The parts of `box` that none of the boxes `by` holds: disjoint, empty if it is covered."""
    rest: tuple[Box, ...] = (box,) if box.num_elements else ()
    for other in by:
        rest = tuple(piece for part in rest for piece in part.minus(other))
    return rest
