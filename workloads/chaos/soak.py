"""A long run under seeded faults, which ends as if there had been none.

    kills    a worker of the plan in force, by SIGKILL from outside, at any point of a step
    stops    it is stopped, and silent until it is replaced
    leaves   a node goes with all that is on it; it comes back some faults later, as a fresh one
    drains   a node is to be free within seconds; then it leaves, and comes back

Dead workers' devices come back by themselves: the brain starts others there, beside the run.
"""

import random
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from raymega.control.states import Finished
from raymega.pipeline.actions import Action, Kind, parse
from workloads.chaos.arena import Arena, Call, Outcome
from workloads.chaos.hands import ProcessHands
from workloads.chaos.kills import check_undisturbed
from workloads.chaos.rewinds import WentBack, restored, rewinds
from workloads.chaos.toy import Layout, config_of

LAYOUT = Layout(dp=3, tp=1, pp=2)
STANDBYS = 1
LIMIT_S = 120.0  # without a step: a hang
KINDS = ("kills", "leaves", "drains", "stops", "kills", "kills", "leaves", "kills", "kills", "kills")  # in turn
NOTICE_S = 3.0
MOST_AWAY = 2
AWAY_FAULTS = 2  # so many faults later a node is back


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What was done to a run that ended as if nothing had been."""

    steps: int
    faults: Counter[str]
    repaired: int
    lost: int
    changes: int
    rolled_back: int
    restored: int
    rewound: tuple[WentBack, ...]

    def __str__(self) -> str:
        again = sum(back.committed - back.to for back in self.rewound)
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"soak: {self.steps} steps, {done}; {self.repaired} steps repaired, {self.lost} workers lost, "
            f"{self.changes} changes of plan and {self.rolled_back} rolled back, {self.restored} times state came from "
            f"copies, {again} steps done again in {len(self.rewound)} rewinds; 0 hangs, every sample once, weights as "
            "undisturbed"
        )


def soak(*, steps: int, faults: int, seed: int, copies_every: int = 1, layout: Layout = LAYOUT) -> Soaked:
    """Raises: AssertionError if the run hangs, loses a sample, ends with other weights, or went back needlessly."""
    struck: Counter[str] = Counter()
    return endure(
        lambda arena, hands: _strike(arena, hands, struck, faults=faults, seed=seed),
        steps=steps, struck=struck, copies_every=copies_every, layout=layout,
    )  # fmt: skip


def endure(
    strike: Callable[[Arena, ProcessHands], None],
    *,
    steps: int,
    struck: Counter[str],
    copies_every: int = 1,
    layout: Layout = LAYOUT,
) -> Soaked:
    """A run that nobody disturbs, and one beside which `strike` goes on and counts in `struck`."""
    devices = {f"n{number}": 1 for number in range(layout.size + STANDBYS)}
    config = config_of(layout, steps=steps, every_steps=50, standbys=STANDBYS, steady_s=0.0, copies_every=copies_every)
    with Arena.open(config, devices=devices, changes_plans=True) as arena:
        calm = arena.run()
        found = arena.run(beside=lambda hands: strike(arena, hands))
        assert isinstance(found.end, Finished), found.end
        assert found.end.exit_code == 0
        check_undisturbed(found, calm=calm)
        _check_samples(found, batch_size=arena.config.training.batch_size)
    certified = [change.certified for _, change in found.kept.changes]
    return Soaked(
        steps=steps, faults=struck, repaired=len(found.kept.repairs), lost=len(found.kept.lost),
        changes=certified.count(True), rolled_back=certified.count(False), restored=restored(found),
        rewound=rewinds(found, copies_every=copies_every),
    )  # fmt: skip


def _strike(arena: Arena, hands: ProcessHands, struck: Counter[str], *, faults: int, seed: int) -> None:
    rng, steps, away = random.Random(seed), arena.config.training.steps, dict[str, int]()
    for number in range(faults):
        due = 2 + number * (steps - 5) // faults
        with hands.changed:
            assert hands.changed.wait_for(lambda due=due: len(hands.kept.records) >= due, LIMIT_S), f"hangs at {due}"
        away = {node: since for node, since in away.items() if number - since < AWAY_FAULTS}
        hands.tell_nodes({node: 1 for node in arena.devices if node not in away})
        victim = rng.choice(hands.kept.assigned[-1].plan.living)
        node, kind = arena.crew.node_of(victim), KINDS[number % len(KINDS)]
        if kind in ("leaves", "drains") and (len(away) == MOST_AWAY or not node):
            kind = "kills"
        if kind == "drains":
            hands.drain(node, for_s=NOTICE_S)
            with hands.changed:
                hands.changed.wait_for(
                    lambda hands=hands, w=victim: w not in hands.kept.assigned[-1].plan.living, NOTICE_S
                )
        if kind in ("leaves", "drains"):
            away[node] = number
            hands.tell_nodes({other: 1 for other in arena.devices if other not in away})
            arena.crew.end_node(node)
            struck[kind] += 1
        elif arena.crew.signal(victim, signal.SIGKILL if kind == "kills" else signal.SIGSTOP):
            struck[kind] += 1


def _check_samples(found: Outcome, *, batch_size: int) -> None:
    """Committed steps hold the samples 0, 1, 2, .. in order, each once, and the first stage has computed just those."""
    firsts = [record.first_sample for _, record in sorted(found.kept.records.items())]
    assert firsts == [batch_size * step for step in range(len(firsts))]
    assert added_by_first_stage(found.calls) == set(range(0, batch_size * len(firsts), 2))


def added_by_first_stage(calls: Iterable[Call]) -> set[int]:
    """The first samples of all micro-batches whose gradients the first stage has added, in whole backwards or parts."""
    adding = (Action(0, Kind.B, 0), Action(0, Kind.W, 0))
    return {call.first_sample for call in calls if replace(parse(call.action), microbatch=0) in adding}
