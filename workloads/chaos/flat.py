"""Memory of a long run that nobody disturbs: what a worker has resident after its first steps is all that it takes.

steps         300   400   500   600
resident MB   255   256   256   256     of each worker; a message that is kept by mistake, once a step, would be 2.8 MB

Before, it fills up what it keeps of the newest steps: 256 commits, should those who have told of them be gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from raymega.control.states import Finished
from raymega.plan.plan import WorkerId
from workloads.chaos.arena import Arena
from workloads.chaos.hands import ProcessHands
from workloads.chaos.kills import devices_of
from workloads.chaos.toy import Layout, config_of

LAYOUTS = (
    Layout(dp=2, tp=1, pp=2),
    Layout(dp=1, tp=2, pp=2, schedule="zb-v"),
    Layout(dp=2, tp=1, pp=2, schedule="interleaved", shard_optimizer="mirrored"),
    Layout(dp=2, tp=1, pp=2, shard_optimizer="zero1"),
)
FIRST, STEPS, EVERY = 300, 600, 100
MOST_GROWTH_BYTES = 2 << 20  # a guess: what allocators take in 300 steps, less than a message a step
LIMIT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Flat:
    """Resident bytes of each worker, every `EVERY` steps."""

    layout: Layout
    resident: dict[WorkerId, list[int]]

    @property
    def growth_bytes(self) -> int:
        """The most that a worker has grown by since the first look."""
        return max(looks[-1] - looks[0] for looks in self.resident.values())

    def __str__(self) -> str:
        rows = (" ".join(f"{look / 1e6:.1f}" for look in looks) for looks in self.resident.values())
        steps = f"steps {FIRST} to {STEPS}, every {EVERY}"
        grown = f"{self.growth_bytes / 1e3:.0f} kB at most since the first"
        return f"{self.layout}: resident MB of each worker, {steps}: {'; '.join(rows)}; grown by {grown}"


def flat_runs() -> Iterator[Flat]:
    """Run each layout. Raises: AssertionError if a worker grows."""
    for layout in LAYOUTS:
        found = Flat(layout=layout, resident=_resident(layout))
        assert found.growth_bytes < MOST_GROWTH_BYTES, f"it grows: {found}"
        yield found


def _resident(layout: Layout) -> dict[WorkerId, list[int]]:
    config, found = config_of(layout, steps=STEPS + 1, optimizer="adamw"), dict[WorkerId, list[int]]()

    def look(hands: ProcessHands) -> None:
        for due in range(FIRST, STEPS + 1, EVERY):
            assert hands.wait_for(lambda due=due: len(hands.kept.records) >= due, LIMIT_S), f"hangs at {due}"
            for worker in arena.crew.names:
                rss = psutil.Process(arena.crew.process_of(worker).pid).memory_info().rss
                found.setdefault(worker, []).append(rss)

    with Arena.open(config, devices=devices_of(layout)) as arena:
        end = arena.run(beside=look).end
        assert isinstance(end, Finished), end
    return found
