"""Two contenders in turn, and what their times say: the ratio of a pair, its interval, and the noise of the same run.

    pair       0    1    2    3                  raymega R, peer P; the order turns, so that a drift favours nobody
    blocks    R P  P R  R P  P R   ...
    ratio     P/R  P/R  P/R  P/R                 tokens/s of raymega over the peer's
    A/A         P/P  R/R  P/P                    neighbours of one contender: what the machine does to equal work

The ratio is the median over pairs, its interval the 2.5 and 97.5 percentiles of medians of resampled pairs.
Source: Efron 1979, bootstrap.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from workloads.bench.contender import Block, Contender

RESAMPLES = 10_000
LOSSES_AGREE = {"fp32": 1e-4, "bf16": 1e-2, "fp16": 1e-2}
WARM_UP_STEPS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A median with its 95 % bootstrap interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "Spread":
        rng = np.random.default_rng(0)
        sample = np.asarray(values)
        medians = np.median(rng.choice(sample, size=(RESAMPLES, len(sample))), axis=1)
        low, high = np.percentile(medians, [2.5, 97.5])
        return cls(median=float(np.median(sample)), low=float(low), high=float(high))

    def __str__(self) -> str:
        return f"{self.median:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The blocks of a contest, pair by pair. `loss_gap`: largest relative difference of losses of the same step."""

    raymega: list[Block]
    peer: list[Block]
    loss_gap: float

    @property
    def ratio(self) -> Spread:
        return Spread.of([p.step_s / r.step_s for r, p in zip(self.raymega, self.peer, strict=True)])

    @property
    def work(self) -> Spread:
        """The ratio of processor times: what is left of the difference where others use the machine as well."""
        return Spread.of([p.processor_s / r.processor_s for r, p in zip(self.raymega, self.peer, strict=True)])

    @property
    def same(self) -> Spread:
        """A/A: the peer's neighbouring blocks, then raymega's, in turn."""
        by_turn = [self.peer if index % 2 == 0 else self.raymega for index in range(len(self.peer) - 1)]
        return Spread.of([blocks[i].step_s / blocks[i + 1].step_s for i, blocks in enumerate(by_turn)])


def alternate(
    raymega: Contender,
    peer: Contender,
    *,
    precision: str,
    num_pairs: int,
    block_s: float,
    tell: Callable[[str], None],
) -> Outcome:
    """Warm both up, hold their losses against each other, and run pairs of blocks.

    Raises: AssertionError if the contenders do not do the same work.
    """
    first = [_block(side, (0, WARM_UP_STEPS)) for side in (raymega, peer)]
    second = [_block(side, (WARM_UP_STEPS, WARM_UP_STEPS + 1)) for side in (raymega, peer)]
    num_steps = max(1, round(block_s / max(block.step_s for block in second)))
    gap = max(_gap(*first), _gap(*second))
    assert gap < LOSSES_AGREE[precision], f"losses of the same steps differ by {gap:.1e}: {first} {second}"
    done = WARM_UP_STEPS + 1
    outcome = Outcome(raymega=[], peer=[], loss_gap=gap)
    turns = [(raymega, outcome.raymega), (peer, outcome.peer)]
    for index in range(num_pairs):
        steps = (done + index * num_steps, done + (index + 1) * num_steps)
        for side, blocks in turns if index % 2 == 0 else turns[::-1]:
            blocks.append(_block(side, steps))
        tell(f"pair {index}: raymega {outcome.raymega[-1].step_s:.4f} s, peer {outcome.peer[-1].step_s:.4f} s a step")
    return outcome


def _block(side: Contender, steps: tuple[int, int]) -> Block:
    side.prepare(steps)
    return side.run()


def _gap(a: Block, b: Block) -> float:
    return max(abs(x - y) / abs(y) for x, y in zip(a.losses, b.losses, strict=True))
