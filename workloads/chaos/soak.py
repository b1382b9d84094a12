"""A long run under seeded faults: workers are killed and stopped again and again, and it ends as if they had not been.

Whenever so many steps were committed, the next fault strikes a worker of the plan in force from outside, so that it
comes at any point of a step. Dead workers' devices come back by themselves: the brain starts others there.
"""

import random
import signal
from collections import Counter
from dataclasses import dataclass

from raymega.control.states import Finished
from workloads.chaos.arena import Arena, Outcome
from workloads.chaos.hands import ProcessHands
from workloads.chaos.kills import check_undisturbed
from workloads.chaos.toy import Layout, config_of

LAYOUT = Layout(dp=3, tp=1, pp=2)
LIMIT_S = 120.0  # without a step: a hang


@dataclass(frozen=True, kw_only=True)
class Soaked:
    """What was done to a run that ended as if nothing had been."""

    steps: int
    faults: Counter[str]
    repaired: int
    lost: int
    rewound: int

    def __str__(self) -> str:
        done = ", ".join(f"{count} {kind}" for kind, count in sorted(self.faults.items()))
        return (
            f"soak: {self.steps} steps, {done}; {self.repaired} steps repaired, {self.lost} workers lost, "
            f"{self.rewound} rewound, 0 hangs, every sample once, weights as undisturbed"
        )


def soak(*, steps: int, faults: int, seed: int) -> Soaked:
    """Raises: AssertionError if the run hangs, loses a sample or ends with other weights."""
    devices = {f"n{number}": 1 for number in range(LAYOUT.size)}
    with Arena.open(config_of(LAYOUT, steps=steps, every_steps=50, standbys=0), devices=devices) as arena:
        calm = arena.run()
        struck: Counter[str] = Counter()
        found = arena.run(beside=lambda hands: _strike(arena, hands, struck, faults=faults, seed=seed))
        assert isinstance(found.end, Finished), found.end
        assert found.end.exit_code == 0
        check_undisturbed(found, calm=calm)
        _check_samples(found, batch_size=arena.config.training.batch_size)
    return Soaked(
        steps=steps, faults=struck, repaired=len(found.kept.repairs), lost=len(found.kept.lost),
        rewound=len(found.kept.rewound),
    )  # fmt: skip


def _strike(arena: Arena, hands: ProcessHands, struck: Counter[str], *, faults: int, seed: int) -> None:
    rng, steps = random.Random(seed), arena.config.training.steps
    for number in range(faults):
        due = 2 + number * (steps - 5) // faults
        with hands.changed:
            assert hands.changed.wait_for(lambda due=due: len(hands.kept.records) >= due, LIMIT_S), f"hangs at {due}"
        victim = rng.choice(hands.kept.assigned[-1].plan.living)
        kind = rng.choices(("kills", "stops"), (9, 1))[0]
        if arena.crew.signal(victim, signal.SIGKILL if kind == "kills" else signal.SIGSTOP):
            struck[kind] += 1


def _check_samples(found: Outcome, *, batch_size: int) -> None:
    """Committed steps hold the samples 0, 1, 2, .. in order, each once, and the first stage has computed just those."""
    firsts = [record.first_sample for _, record in sorted(found.kept.records.items())]
    assert firsts == [batch_size * step for step in range(len(firsts))]
    computed = {call.first_sample for call in found.calls if call.action.startswith("0B")}
    assert computed == set(range(0, batch_size * len(firsts), 2))
