"""Is the state that workers hold after a transition the one that they held before? Pure: from what they say, a verdict.

    before   w0 0:4 a   w1 4:8 b                  after   w0 0:2 c   w1 2:4 d   w2 4:8 e
             each element once: a + b       =             each element once: c + d + e          of every tensor and kind

A fingerprint is a sum over elements, so it does not hang on how a tensor is cut; copies of one box must have the same.
Counters, rate and position must be equal everywhere. Whatever is not is named, and nothing of the new state counts.
"""

from dataclasses import dataclass

from raymega.layout.shard_box import Box
from raymega.plan.plan import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Of one held box: `value` is the sum mod 2^64 over its elements of a hash of (bits, global index)."""

    name: str
    kind: str
    box: Box
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePart:
    """What one worker holds around a transition, by its own reading.

    Args:
        step: committed steps that its state has seen.
        skipped: skipped steps among them.
        position: samples consumed; the next step begins with this one.
        lr: rate of the update that leads to its state.
        updates: updates that its optimizers have made.
        before: of all that it held by the old plan; empty if it held nothing.
        after: of all that it holds by the new plan; empty if it has no part in it.
    """

    worker: WorkerId
    step: int
    skipped: int
    position: int
    lr: float
    updates: int
    before: tuple[Fingerprint, ...]
    after: tuple[Fingerprint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """The new state is the old one. `bytes_moved`: what had to travel, the least that is possible."""

    reason: str
    bytes_moved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The new state is not the old one, or nobody can tell; each fault is a sentence."""

    faults: tuple[str, ...]
