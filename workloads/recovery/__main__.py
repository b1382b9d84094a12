"""`python -m workloads.recovery [SIDE ...] [--kills N]`: kill workers of each side; print what it costs."""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median

from workloads.recovery.sides import SIDES, opened, wait_for
from workloads.recovery.toy import REPLICAS, SAVE_EVERY, Cost, Side, cost_of

GOAL = 10.0


def main(words: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m workloads.recovery")
    parser.add_argument("sides", nargs="*", choices=[*SIDES, []], default=[])
    parser.add_argument("--kills", type=int, default=5)
    asked = parser.parse_args(words)
    print(
        f"kill -9 of one of {REPLICAS} replicas; a checkpoint every {SAVE_EVERY} steps; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.1f}; seconds beyond an undisturbed step, median (least to most)"
    )
    costs = {name: measured(name, kills=asked.kills) for name in asked.sides or SIDES}
    for name, cost in costs.items():
        if name != "raymega" and "raymega" in costs:
            print(compared(costs["raymega"], cost, name=name))


def measured(name: str, *, kills: int) -> list[Cost]:
    """The costs of so many kills of one side, one after the other."""
    rng, costs = random.Random(name), list[Cost]()
    with tempfile.TemporaryDirectory(prefix="rm-") as folder, opened(name, Path(folder)) as side:
        for number in range(kills):
            side.wait_until_whole(number)
            steps = len(side.commits()) + rng.randrange(SAVE_EVERY)  # anywhere between two checkpoints
            wait_for(lambda steps=steps: len(side.commits()) >= steps, what="steps before a kill")  # type: ignore[misc]
            costs.append(struck(side, part=rng.random()))
            print(f"  {name}: {costs[-1]}", file=sys.stderr, flush=True)
    by = ", ".join(map(str, sorted({cost.next_workers for cost in costs})))
    print(
        f"{name:<10} step {spread(costs, lambda c: c.step_s)}; next commit {spread(costs, lambda c: c.next_s)} "
        f"by {by}; back at {REPLICAS} {spread(costs, lambda c: c.whole_s)}; steps redone "
        f"{spread(costs, lambda c: c.redone, digits=0)}; {len(costs)} kills",
        flush=True,
    )
    for part in costs[0].split:
        print(f"{'':<12}{part:<22}{spread(costs, lambda c, part=part: c.split[part])}", flush=True)  # type: ignore[misc]
    return costs


def struck(side: Side, *, part: float) -> Cost:
    """Kill a worker somewhere in a step, and wait until everyone is there again."""
    victim, commits = side.victim(), side.commits()
    step_s = commits[-1].t - commits[-2].t
    wait_for(lambda: len(side.commits()) > len(commits), what="step before a kill")
    time.sleep(part * step_s)
    killed_t = time.time()
    os.kill(victim, signal.SIGKILL)
    wait_for(lambda: cost_of(side.commits(), killed_t=killed_t, split={}) is not None, what="commit by all")
    cost = cost_of(side.commits(), killed_t=killed_t, split=side.split(killed_t))
    assert cost is not None, "waited for"
    return cost


def compared(ours: Sequence[Cost], theirs: Sequence[Cost], *, name: str) -> str:
    """Ratios of the medians."""
    next_x, whole_x = (
        median(of(c) for c in theirs) / max(1e-3, median(of(c) for c in ours))
        for of in (lambda c: c.next_s, lambda c: c.whole_s)
    )
    verdict = "met" if next_x >= GOAL else "missed"
    return f"{name} / raymega: next commit {next_x:.1f}x (goal {GOAL:.0f}x, {verdict}), back at N {whole_x:.1f}x"


def spread(costs: Sequence[Cost], of: Callable[[Cost], float], *, digits: int = 3) -> str:
    values = sorted(of(cost) for cost in costs)
    return f"{median(values):.{digits}f} ({values[0]:.{digits}f} to {values[-1]:.{digits}f})"


if __name__ == "__main__":
    main(sys.argv[1:])
