"""A box: the index range of one named tensor that one worker holds.

    tensor [4, 6]     Box(offsets=(0, 3), sizes=(4, 3))
      . . . # # #
      . . . # # #
      . . . # # #
      . . . # # #

Offsets and sizes are in elements of the whole (global, unpadded) tensor. Parameters, master weights and
optimizer moments are held in the same boxes. A scalar's box has no dimensions and one element.
"""

from dataclasses import dataclass
from math import prod


@dataclass(frozen=True, slots=True, order=True)
class Box:
    """`offsets[d] : offsets[d] + sizes[d]` in every dimension d."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        assert len(self.offsets) == len(self.sizes), f"{self} has as many offsets as sizes"
        assert all(o >= 0 for o in self.offsets) and all(s >= 0 for s in self.sizes), f"{self} is not negative"

    @classmethod
    def whole(cls, shape: tuple[int, ...]) -> "Box":
        """The box that is the tensor itself."""
        return cls((0,) * len(shape), tuple(shape))

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

    def within(self, outer: "Box") -> tuple[slice, ...]:
        """Index this box inside a tensor that holds exactly `outer`.

        Raises: AssertionError if `outer` does not contain it.
        """
        assert all(
            o >= oo and e <= oe
            for o, oo, e, oe in zip(self.offsets, outer.offsets, self.ends, outer.ends, strict=True)
        ), f"{self} lies within {outer}"
        return tuple(
            slice(o - oo, o - oo + s) for o, oo, s in zip(self.offsets, outer.offsets, self.sizes, strict=True)
        )

    def __str__(self) -> str:
        return ",".join(f"{o}:{e}" for o, e in zip(self.offsets, self.ends, strict=True)) or "scalar"
