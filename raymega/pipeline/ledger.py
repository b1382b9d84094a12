"""What a team has done of a step: the facts that decide whether it may be committed, and what a repair still needs.

    step 41 | 1F0 1F1 1B0            a fact is an action that is finished; it is written down after its last effect
              hash(microbatch=0, stage=1, shard) --+
    every worker's sum of its backwards ----------- sum over all workers, mod 2^64 == expected_work(...), else no commit

One number turns lost and doubled work into an error instead of wrong weights. The sum does not depend on the order,
nor on who did what. The mixing function is splitmix64's (Steele, Lea, Flood 2014).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from raymega.errors import RaymegaBug
from raymega.pipeline.actions import Action, Kind, show_program

_WORD = (1 << 64) - 1
_BEFORE = {Kind.B: Kind.F, Kind.I: Kind.F, Kind.W: Kind.I}

_Ints = npt.NDArray[np.int64]
_Words = npt.NDArray[np.uint64]


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The finished actions of one team in one step of one generation. Not thread-safe: written by who computes."""

    step: int
    generation: int
    _done: dict[Action, None] = field(default_factory=dict)  # in the order they were finished

    def record(self, action: Action) -> None:
        """Write down a finished action.

        Raises: RaymegaBug if it is in the ledger already, or before what it needs of its own pass.
        """
        if action in self._done:
            raise RaymegaBug(f"{action} of step {self.step} is finished twice; the ledger has it already.")
        needed = _BEFORE.get(action.kind)
        before = Action(action.stage, needed, action.microbatch) if needed is not None else None
        if before is not None and before not in self._done:
            raise RaymegaBug(f"{action} of step {self.step} is finished, but not {before}.")
        self._done[action] = None

    @property
    def facts(self) -> tuple[Action, ...]:
        """The finished actions, in the order they were finished."""
        return tuple(self._done)

    def work(self, *, shard: int) -> int:
        """The sum of `work_hash` over the backwards done, weights' part and all, as shard `shard` of the team."""
        backwards = [action for action in self._done if action.kind in (Kind.B, Kind.W)]
        return sum_of_work(
            work_hash(microbatch=action.microbatch, stage=action.stage, shard=shard) for action in backwards
        )

    def __str__(self) -> str:
        return f"step {self.step} | {show_program(self.facts)}"


def work_hash(*, microbatch: int, stage: int, shard: int) -> int:
    """64 bits for the backward of one micro-batch at one virtual stage, as one shard did it."""
    return int(_hashes(np.array([microbatch]), np.array([stage]), np.array([shard]))[0])


def sum_of_work(hashes: Iterable[int]) -> int:
    """Add up 64-bit hashes, in any order."""
    return sum(hashes) & _WORD


def expected_work(*, num_microbatches: int, num_stages: int, tp: int) -> int:
    """What the sums of all workers must add up to if every backward of the step was done exactly once.

    Args:
        num_stages: virtual stages.
        tp: shards of a team.
    """
    grid = np.meshgrid(np.arange(num_microbatches), np.arange(num_stages), np.arange(tp), indexing="ij")
    return int(_hashes(*grid).sum(dtype=np.uint64))


def _hashes(microbatch: _Ints, stage: _Ints, shard: _Ints) -> _Words:
    """Element by element; uint64 arrays wrap round, as the arithmetic mod 2^64 wants it."""
    x: _Words = (microbatch.astype(np.uint64) << np.uint64(32)) | (stage.astype(np.uint64) << np.uint64(16))
    x = (x | shard.astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
