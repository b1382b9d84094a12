"""The mesh: which rank stands at which (replica, stage, shard), and who shares an axis with it.

    dp=2 tp=2 pp=2      stage 0     stage 1
      replica 0         0  1        2  3          one row of a stage is a team: its tp shards
      replica 1         4  5        6  7

The tensor-parallel axis runs fastest, so that a team has consecutive ranks and a placement that fills
nodes in rank order keeps it on one node. Order of the axes as in Narayanan et al. 2021 (arXiv 2104.04473), section 3.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Coord:
    """Where a rank stands: data-parallel replica, pipeline stage, tensor-parallel shard, each from 0."""

    replica: int
    stage: int
    shard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """The shape of the parallelism; `dp * pp * tp` ranks."""

    dp: int
    pp: int
    tp: int

    def __post_init__(self) -> None:
        assert min(self.dp, self.pp, self.tp) >= 1, f"every axis of {self} has at least one rank"

    @property
    def size(self) -> int:
        return self.dp * self.pp * self.tp

    def rank(self, coord: Coord) -> int:
        """The rank at `coord`; the inverse of `coord`."""
        return (coord.replica * self.pp + coord.stage) * self.tp + coord.shard

    def coord(self, rank: int) -> Coord:
        """The coordinates of `rank`; the inverse of `rank`."""
        team, shard = divmod(rank, self.tp)
        replica, stage = divmod(team, self.pp)
        return Coord(replica, stage, shard)

    def team(self, *, replica: int, stage: int) -> tuple[int, ...]:
        """The ranks that together hold `stage` of `replica`, by shard."""
        first = (replica * self.pp + stage) * self.tp
        return tuple(range(first, first + self.tp))

    def ring(self, *, stage: int, shard: int) -> tuple[int, ...]:
        """The ranks that hold the same boxes and sum their gradients, by replica."""
        return tuple(self.rank(Coord(replica, stage, shard)) for replica in range(self.dp))

    def __str__(self) -> str:
        return f"dp={self.dp} tp={self.tp} pp={self.pp}"
