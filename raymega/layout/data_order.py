"""Which row stands where in the order of the data: arithmetic on (seed, epoch, position), and nothing else.

    position   0 1 2 3 4 5 6 | 7 8 9 ...            num_rows = 7; position = epoch * num_rows + index
    epoch      0 0 0 0 0 0 0 | 1 1 1 ...
    row        3 0 6 2 5 1 4 | 2 5 0 ...            a bijection of [0, num_rows) in each epoch, another one in the next
    step       0 0 0 0 1 1 1 | 1 2 2 ...            batch_size = 4; step k has positions [4k, 4k + 4)

    epoch, index = divmod(position, num_rows)       row = permutation(seed, epoch)[index], computed, never stored

dp does not occur in it, nor does any other size of the plan: a run's place in the data is its number of steps.
A step may begin in one epoch and end in the next, so no tail of an epoch is dropped and every epoch has each row once.
Validation has its own order, ascending, whose last batch is filled up with positions of -1 (rows that train nothing).

The permutation is a Feistel network on a mixed radix: index = left * right_size + right; each round adds a hash of one
half to the other, modulo that half's size, which can be undone and so is a bijection of the left_size * right_size
numbers; the few results >= num_rows are sent through again until they fall inside ("cycle walking").
Source: Black and Rogaway 2002, "Ciphers with arbitrary finite domains"; the hash is the finaliser of splitmix64.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isqrt

import numpy as np
from numpy.typing import NDArray

from raymega.errors import ConfigError

Int64s = NDArray[np.int64]
UInt64s = NDArray[np.uint64]

NUM_ROUNDS = 8
"""Rounds of the network; 8 mix small domains well (tested), and cost nothing beside reading a row."""

MAX_PERIOD = 4096
"""The longest period of a blend, in positions; every share is within 1 / MAX_PERIOD of its weight's."""

NO_ROW = -1
"""The position of a row that only fills up the last validation batch."""


def step_positions(step: int, *, batch_size: int) -> Int64s:
    """The positions of the global order that step `step` (from 0) consumes."""
    return np.arange(step * batch_size, (step + 1) * batch_size, dtype=np.int64)  # [B]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOrder:
    """The endless order of one source of `num_rows` rows; ascending in each epoch unless shuffled."""

    num_rows: int
    seed: int
    shuffle: bool = True

    def row_of(self, positions: Int64s) -> Int64s:
        """The row at each position; positions count from 0 and are never reset by epochs."""
        epoch, index = np.divmod(positions, self.num_rows)  # [B], [B]
        if not self.shuffle:
            return index
        keys = _round_keys(self.seed, epoch)  # [rounds, B]
        row = _feistel(index.astype(np.uint64), keys, num_rows=self.num_rows)
        outside = np.flatnonzero(row >= self.num_rows)
        while outside.size:
            row[outside] = _feistel(row[outside], keys[:, outside], num_rows=self.num_rows)
            outside = outside[row[outside] >= self.num_rows]
        return row.astype(np.int64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Where positions lie: [B] index of the source, and [B] row in that source."""

    source: Int64s
    row: Int64s


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlendOrder:
    """The endless order of several sources: at each position the source that is furthest behind its share comes next.

        weights 0.5 0.25 0.25      pattern  0 1 2 0 | 0 1 2 0 | ...      period = 4

    Weights become whole shares of a period of at most MAX_PERIOD positions. The largest deficit is repaid within the
    period, so the pattern repeats exactly, and any position costs one look-up: source i has had
    shares[i] * (position // period) rows before this period, and before[position % period] in it.
    """

    sources: tuple[DataOrder, ...]
    shares: Int64s  # [sources]
    pattern: Int64s  # [period]
    before: Int64s = field(repr=False)  # [period], rows of the same source earlier in the period

    @classmethod
    def build(cls, num_rows: Sequence[int], *, weights: Sequence[float], seed: int, shuffle: bool) -> "BlendOrder":
        """Blend sources of `num_rows` rows by `weights` (any positive scale); one source has weight 1, whatever it is.

        Raises:
            ConfigError: a weight is too small a part of the whole to be kept.
        """
        shares = _shares(np.asarray(weights, dtype=np.float64))
        pattern = _largest_deficit(shares)
        rank = np.cumsum(pattern[:, None] == np.arange(len(shares)), axis=0)  # [period, sources]
        return cls(
            sources=tuple(
                DataOrder(num_rows=rows, seed=seed ^ (i << 32), shuffle=shuffle) for i, rows in enumerate(num_rows)
            ),
            shares=shares,
            pattern=pattern,
            before=rank[np.arange(len(pattern)), pattern] - 1,
        )

    def rows_of(self, positions: Int64s) -> Rows:
        """The source and the row in it at each position."""
        period, offset = np.divmod(positions, len(self.pattern))
        source = self.pattern[offset]  # [B]
        position_in_source = period * self.shares[source] + self.before[offset]  # [B]
        row = np.empty_like(source)
        for i, order in enumerate(self.sources):
            chosen = source == i
            row[chosen] = order.row_of(position_in_source[chosen])
        return Rows(source=source, row=row)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidOrder:
    """The order of an evaluation: rows 0 .. num_rows - 1 once, in batches of one size."""

    num_rows: int
    batch_size: int

    @property
    def num_batches(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def positions(self, batch: int) -> Int64s:
        """Rows of batch `batch`; NO_ROW where the split is at its end, so that every batch has one shape."""
        rows = step_positions(batch, batch_size=self.batch_size)  # [B]
        return np.where(rows < self.num_rows, rows, NO_ROW)


def _mix(x: UInt64s) -> UInt64s:
    """The finaliser of splitmix64: 64 bits in, 64 well mixed bits out (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _round_keys(seed: int, epoch: Int64s) -> UInt64s:
    """[rounds, B]: a key for each round of each position's epoch."""
    base = _mix(np.array([seed & 0xFFFF_FFFF_FFFF_FFFF], dtype=np.uint64))  # [1]
    of_epoch = _mix(base + epoch.astype(np.uint64))  # [B]
    rounds = np.arange(1, NUM_ROUNDS + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return _mix(of_epoch[None, :] + rounds[:, None])


def _feistel(index: UInt64s, keys: UInt64s, *, num_rows: int) -> UInt64s:
    """A bijection of [0, left_size * right_size), a rectangle that holds num_rows with less than a line to spare."""
    left_size = np.uint64(isqrt(num_rows - 1) + 1)  # the square root, rounded up
    right_size = np.uint64(-(-num_rows // int(left_size)))
    left, right = np.divmod(index, right_size)
    for turn in range(NUM_ROUNDS):
        if turn % 2:
            right = (right + _mix(left + keys[turn]) % right_size) % right_size
        else:
            left = (left + _mix(right + keys[turn]) % left_size) % left_size
    return left * right_size + right


def _shares(weights: NDArray[np.float64]) -> Int64s:
    """Whole shares with weights' proportions: of the shortest period that is exact, else of the closest one."""
    _, exponent = np.frexp(weights.max())
    weights_of_1 = np.ldexp(weights, -exponent)  # the largest is in [0.5, 1), so that no sum overflows; exact
    fractions = weights_of_1 / weights_of_1.sum()
    periods = np.arange(1, MAX_PERIOD + 1)[:, None]  # [periods, 1]
    dealt = _largest_remainder(fractions * periods)  # [periods, sources]
    error = np.abs(dealt / periods - fractions).max(axis=1)  # [periods], of the last one below 1 / MAX_PERIOD
    shares: Int64s = dealt[np.argmax(error <= max(1e-12, error.min()))]
    if shares.min() < 1:
        small = int(shares.argmin())
        raise ConfigError(
            f"weight {weights[small]:g} of source {small} is {fractions[small]:.2g} of the blend; "
            f"a source needs at least 1/{MAX_PERIOD} of it. Raise the weight or leave the source out.",
            source=small,
        )
    return shares


def _largest_remainder(scaled: NDArray[np.float64]) -> Int64s:
    """Each line as whole numbers of the same sum: rounded down, and up where the most would be lost; ties to the first.

    Source: Hamilton's method of apportionment; no number moves by 1 or more.
    """
    low = np.floor(scaled + 1e-9)  # [periods, sources]
    missing = np.rint(scaled.sum(axis=1)) - low.sum(axis=1)  # [periods]
    place = np.argsort(np.argsort(low - scaled, axis=1, kind="stable"), axis=1)
    return np.asarray(low + (place < missing[:, None]), dtype=np.int64)


def _largest_deficit(shares: Int64s) -> Int64s:
    """One period: each position goes to the source with the largest (share so far - rows so far); ties to the first."""
    period = int(shares.sum())
    deficit = np.zeros_like(shares)
    pattern = np.empty(period, dtype=np.int64)
    for position in range(period):
        deficit += shares
        pattern[position] = deficit.argmax()
        deficit[pattern[position]] -= period
    assert not deficit.any(), "every debt is repaid within the period"
    return pattern
