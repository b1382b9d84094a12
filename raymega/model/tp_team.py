"""How activations enter and leave the region that a team has cut: Megatron's conjugate pair f and g.

    x --f--> [ cut region: each shard has its heads, its rows of the ffn ] --g--> y

                     forward                      backward
    f                spread                       collect
    g                collect                      spread

                     without sequence parallel    with sequence parallel
    spread           identity                     all-gather along the sequence
    collect          all-reduce                   reduce-scatter along the sequence

Under sequence parallelism, shard s holds positions [s T/tp, (s+1) T/tp) outside the cut regions, and a collect is never
an all-reduce as well.
Sources: Shoeybi et al. 2019 (arXiv 1909.08053), section 3; Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.
"""

from dataclasses import dataclass

from torch import Tensor

from raymega.comm.group import Group, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A collect in flight; `work` is None when it is complete."""

    value: Tensor
    work: Work | None = None

    def wait(self) -> Tensor:
        """The collected tensor, complete."""
        if self.work is not None:
            self.work.wait()
        return self.value


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """The shards that together hold a stage, as one of them sees them; `group` None is a team of one."""

    group: Group | None = None
    sequence_parallel: bool = False

    @property
    def size(self) -> int:
        return 1 if self.group is None else self.group.size

    @property
    def rank(self) -> int:
        return 0 if self.group is None else self.group.rank

    @property
    def cuts_sequence(self) -> bool:
        return self.sequence_parallel and self.size > 1

    def spread(self, x: Tensor) -> Tensor:
        """[B, T/tp or T, D] -> [B, T, D]; f forward, g backward."""
        return self._gather_sequence(x) if self.cuts_sequence else x

    def collect(self, y: Tensor) -> Tensor:
        """Sum the shards' `y` [B, T, D] -> [B, T/tp or T, D]; g forward, f backward. May overwrite `y`."""
        return self.start_collect(y).wait()

    def start_collect(self, y: Tensor) -> Pending:
        """Like `collect`, but returns at once where the group can; `y` is not touched until `wait`."""
        if self.size == 1:
            return Pending(value=y)
        if self.cuts_sequence:
            return Pending(value=self._sum_and_cut_sequence(y))
        y = y.contiguous()
        assert self.group is not None
        return Pending(value=y, work=self.group.start_all_reduce(y))

    def sum_(self, x: Tensor) -> Tensor:
        """Sum the shards' `x` in place."""
        if self.group is not None:
            self.group.all_reduce(x)
        return x

    def max_(self, x: Tensor) -> Tensor:
        """Take the greatest of the shards' `x` in place, element by element."""
        if self.group is not None:
            self.group.all_reduce(x, "max")
        return x

    def positions(self, num_local: int) -> range:
        """The global positions of a sequence whose local part, outside the cut regions, has `num_local`."""
        start = self.rank * num_local if self.cuts_sequence else 0
        return range(start, start + num_local)

    def gather_stacked(self, x: Tensor) -> Tensor:
        """[...] -> [tp, ...], by shard."""
        if self.group is None:
            return x[None]
        out = x.new_empty((self.size, *x.shape))
        self.group.all_gather(out, x.contiguous())
        return out

    def _gather_sequence(self, x: Tensor) -> Tensor:
        batch, part, width = x.shape
        stacked = self.gather_stacked(x)  # [tp, B, T/tp, D]
        return stacked.transpose(0, 1).reshape(batch, self.size * part, width)

    def _sum_and_cut_sequence(self, y: Tensor) -> Tensor:
        batch, length, width = y.shape
        parts = y.view(batch, self.size, length // self.size, width).transpose(0, 1).contiguous()  # [tp, B, T/tp, D]
        out = parts.new_empty(parts.shape[1:])
        assert self.group is not None
        self.group.reduce_scatter(out, parts)
        return out
