"""How much of a run is left while its workers die, at steps of a second: stages that wait a known time.

    available    four workers, two warm standbys that are started beside the run; kills from outside, anywhere in a
                 step: one in six steps, or one in each, the mesh whole again before it
    kept         no standby, and dead workers' devices stay away: steps a second beside the linear share
    regrouped    eight workers and a standby: what a kill costs, by its parts

A started step is lost if it is begun anew or rewound; one that is finished by those who are left is not.
"""

import random
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from raymega.control.events import StopAsked
from raymega.control.states import Finished
from raymega.plan.plan import WorkerId
from workloads.chaos.arena import Arena, Outcome
from workloads.chaos.hands import Kept, ProcessHands
from workloads.chaos.toy import MODEL, Layout, config_of

LIMIT_S = 60.0
WARM_UP = 3  # steps before the first kill
EVEN = MODEL | {"num_layers": 4}  # as many on each stage, as these wait: fewer workers are slower by prediction too
PATIENCE = 12  # steps that it may take until the mesh is whole again


@dataclass(frozen=True, kw_only=True)
class Blow:
    """One kill. Seconds from it: `heard_s` until the controller knew, `commit_s` until the next commit."""

    heard_s: float
    commit_s: float


@dataclass(frozen=True, kw_only=True)
class Struck:
    """A run whose workers were killed one after the other, all steps of which were committed in the end.

    Args:
        asked: so many kills.
        every: so many steps.
    """

    layout: Layout
    asked: int
    every: int
    outcome: Outcome
    blows: tuple[Blow, ...]

    @property
    def lost(self) -> int:
        """Steps that were started and begun anew, or rewound; who starts late, or rolls back, has begun none."""
        kept = self.outcome.kept
        anew = [plan for plan in kept.assigned if plan.step > 0 and plan.move is None and not plan.repair]
        rolled_back = [change for _, change in kept.changes if not change.certified]
        return len(anew) - len(rolled_back) + sum(self._rewound(kept))

    @staticmethod
    def _rewound(kept: Kept) -> Iterator[int]:
        for step in kept.rewound:
            yield max(0, max(kept.committed_at) - step)

    @property
    def share(self) -> float:
        """Of started steps: those that were committed."""
        committed = len(self.outcome.kept.records)
        return committed / (committed + self.lost)

    @property
    def calm_step_s(self) -> float:
        times = self.outcome.kept.committed_at
        return median(times[step + 1] - times[step] for step in range(1, WARM_UP))

    @property
    def pace(self) -> float:
        """Steps a second, beside those of the same run before its first kill."""
        times = self.outcome.kept.committed_at
        return self.calm_step_s * (len(times) - WARM_UP) / (times[len(times)] - times[WARM_UP])

    def __str__(self) -> str:
        kept = self.outcome.kept
        joined = [change.actual_s for _, change in kept.changes if change.certified]
        rows = [
            f"{self.layout}, {len(self.blows)} of {self.asked} kills, one in {self.every}: {self.share:.1%} of "
            f"{len(kept.records) + self.lost} started steps committed, steps of {self.calm_step_s:.2f} s, "
            f"pace {self.pace:.1%} of undisturbed",
            f"  kill to heard      {spread([blow.heard_s for blow in self.blows])}",
            f"  kill to commit     {spread([blow.commit_s for blow in self.blows])}, the step's own rest included",
            f"  regroup            {spread([repair.regroup_s for repair in kept.repairs])}",
            f"  repair             {spread([repair.repair_s for repair in kept.repairs])}",
            f"  a standby joins    {spread(joined)}, the pause for it",
        ]
        return "\n".join(rows)


def available(*, failures: int, every: int, seed: int = 0) -> Struck:
    """dp=2 pp=2 and two standbys; steps of 8 waits."""
    return struck(Layout(dp=2, tp=1, pp=2), failures=failures, every=every, seed=seed, standbys=2, wait_s=0.2)


def regrouped(*, failures: int, seed: int = 0) -> Struck:
    """dp=4 pp=2 and one standby; short steps."""
    return struck(Layout(dp=4, tp=1, pp=2), failures=failures, every=2, seed=seed, standbys=1, wait_s=0.05)


def struck(layout: Layout, *, failures: int, every: int, seed: int, standbys: int, wait_s: float) -> Struck:
    """Kill `failures` workers, one in `every` steps, each time once the mesh is whole; stop when it is so at last."""
    steps = WARM_UP + failures * (every + PATIENCE)
    config = config_of(
        layout, steps=steps, batch_size=6 * layout.dp, model=EVEN, standbys=standbys, max_restarts=5
    )  # fmt: skip
    devices = {f"n{number}": 1 for number in range(layout.size + standbys)}
    kills: dict[WorkerId, float] = {}
    with Arena.open(config, devices=devices, wait_s=wait_s, changes_plans=True) as arena:
        outcome = arena.run(
            beside=lambda hands: _strike(arena, hands, kills, failures=failures, every=every, seed=seed)
        )
    assert isinstance(outcome.end, Finished), outcome.end
    assert outcome.end.exit_code == 0
    blows = tuple(_blows(outcome.kept, kills))
    return Struck(layout=layout, asked=failures, every=every, outcome=outcome, blows=blows)


def _strike(
    arena: Arena, hands: ProcessHands, kills: dict[WorkerId, float], *, failures: int, every: int, seed: int
) -> None:
    rng, kept = random.Random(seed), hands.kept
    for number in range(failures):
        due = WARM_UP + number * every
        _wait(hands, lambda due=due: len(kept.records) >= due and _is_whole(kept, kills))
        times = kept.committed_at
        time.sleep(rng.random() * (times[2] - times[1]))
        victim = rng.choice(kept.assigned[-1].plan.living)
        killed_at = time.monotonic()
        if arena.crew.signal(victim, signal.SIGKILL):
            kills[victim] = killed_at
    _wait(hands, lambda: _is_whole(kept, kills))
    hands.tell(StopAsked(by="user"))


def _is_whole(kept: Kept, killed: Collection[WorkerId]) -> bool:
    """As many work as at first, none of them was killed, and no change of plan is underway."""
    plan, moves = kept.assigned[-1].plan, sum(assigned.move is not None for assigned in kept.assigned)
    everyone = not plan.lost and len(plan.living) == len(kept.assigned[0].plan.living)
    return everyone and not set(plan.living) & set(killed) and moves == len(kept.changes)


def _wait(hands: ProcessHands, condition: object) -> None:
    with hands.changed:
        assert hands.changed.wait_for(condition, LIMIT_S), f"hangs at {len(hands.kept.records)}"  # type: ignore[arg-type]


def _blows(kept: Kept, kills: Mapping[WorkerId, float]) -> Iterator[Blow]:
    commits, lost_at = sorted(kept.committed_at.values()), {worker: t for t, worker in kept.lost}
    for victim, killed_at in kills.items():
        heard = lost_at[victim]
        yield Blow(heard_s=heard - killed_at, commit_s=next(t for t in commits if t > heard) - killed_at)


@dataclass(frozen=True, kw_only=True)
class Share:
    """Steps a second with `dead` of the workers gone, as a share of those with all."""

    dead: int
    kept: float
    linear: float

    def __str__(self) -> str:
        return f"  {self.dead} gone: {self.kept:.3f} of the throughput kept, linear share {self.linear:.3f}"


def kept_throughput(layout: Layout, *, wait_s: float, steps_each: int = 4) -> list[Share]:
    """Kill one worker after the other, for good, down to one team of each stage."""
    dead = layout.size - layout.pp
    config = config_of(layout, steps=(dead + 1) * (steps_each + 1) + 1, batch_size=24)
    nodes = {f"n{number}": 1 for number in range(layout.size)}
    marks: list[int] = []
    with Arena.open(config, devices=nodes, wait_s=wait_s, changes_plans=True) as arena:
        outcome = arena.run(beside=lambda hands: _thin(arena, hands, marks, dead=dead, steps_each=steps_each))
    assert isinstance(outcome.end, Finished), outcome.end
    times = outcome.kept.committed_at
    lengths = [
        median(times[step + 1] - times[step] for step in range(mark - steps_each + 1, mark))
        for mark in (*marks, max(times))
    ]
    return [
        Share(dead=k, kept=lengths[0] / length, linear=(layout.size - k) / layout.size)
        for k, length in enumerate(lengths)
    ]


def _thin(arena: Arena, hands: ProcessHands, marks: list[int], *, dead: int, steps_each: int) -> None:
    kept, nodes = hands.kept, dict(arena.devices)
    for _ in range(dead):
        due = (marks[-1] + 1 if marks else 1) + steps_each
        _wait(hands, lambda due=due: len(kept.records) >= due)
        plan = kept.assigned[-1].plan
        stages = [plan.coord_of(worker).stage for worker in plan.living]
        victim = next(w for w in reversed(plan.living) if stages.count(plan.coord_of(w).stage) > 1)
        marks.append(due)
        nodes.pop(arena.crew.node_of(victim))
        arena.crew.signal(victim, signal.SIGKILL)
        hands.tell_nodes(nodes)


def spread(values: Sequence[float]) -> str:
    """Median, least and most."""
    if not values:
        return "none"
    return f"{median(values):.3f} s ({min(values):.3f} to {max(values):.3f})"
