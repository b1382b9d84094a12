"""`python -m workloads.chaos [kills] [soak] [trace] [available] [kept] [regroup]`: what `make chaos` runs."""

import sys
import time
from collections.abc import Iterator

from workloads.chaos.availability import available, kept_throughput, regrouped
from workloads.chaos.crew import fork_server
from workloads.chaos.kills import LAYOUTS, Verdict, kill, kills_of, opened
from workloads.chaos.replay import drawn, replay
from workloads.chaos.soak import soak
from workloads.chaos.toy import Layout

PARTS = ("kills", "soak", "trace", "available", "kept", "regroup")
FOUR = Layout(dp=4, tp=1, pp=1)


def all_kills() -> int:
    """Every kill of every layout; the number of those that cost something."""
    failed = 0
    for layout in LAYOUTS:
        began, verdicts = time.monotonic(), list[Verdict]()
        with opened(layout) as arena:
            calm = arena.run()
            for case in kills_of(layout):
                try:
                    verdicts.append(kill(arena, case, calm=calm))
                except AssertionError as error:
                    failed += 1
                    print(f"NOT SO: {case}: {error!r}"[:500], flush=True)
        seconds = sorted(verdict.repair_s for verdict in verdicts) or [0.0]
        print(
            f"{layout}: {len(verdicts)} kills cost nothing in {time.monotonic() - began:.0f} s; from the last sign of "
            f"life to the commit {seconds[len(seconds) // 2]:.2f} s median, {seconds[-1]:.2f} s most; "
            f"weights to the bit {sum(verdict.bits for verdict in verdicts)}",
            flush=True,
        )
    return failed


def measures(parts: list[str]) -> Iterator[str]:
    """What is not right or wrong but a number."""
    if "available" in parts:
        yield f"{available(failures=10, every=6)}"
        yield f"{available(failures=20, every=1)}"
    if "kept" in parts:
        yield f"{FOUR}, dead workers stay away:"
        yield from map(str, kept_throughput(FOUR, wait_s=0.17))
    if "regroup" in parts:
        yield f"{regrouped(failures=10)}"


def main(words: list[str]) -> int:
    """Run the parts that are named, or all."""
    parts = words or list(PARTS)
    with fork_server():
        failed = all_kills() if "kills" in parts else 0
        if "soak" in parts:
            print(soak(steps=400, faults=200, seed=0), flush=True)
        if "trace" in parts:
            print(f"trace: {replay(drawn(changes=60, seed=0), speed=100.0, steps=400)}", flush=True)
        for line in measures(parts):
            print(line, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
