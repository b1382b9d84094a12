"""`python -m workloads.chaos [kills] [shards] [soak] [trace] [copies] [available] [kept] [regroup] [flat]`."""

import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from workloads.chaos.availability import available, kept_throughput, regrouped
from workloads.chaos.copies import outlived, stalled
from workloads.chaos.crew import fork_server
from workloads.chaos.flat import flat_runs
from workloads.chaos.kills import LAYOUTS, Kill, Verdict, kill, kill_last, kills_of, last_kills_of, opened
from workloads.chaos.replay import drawn, replay
from workloads.chaos.shards import SHARDED, Restored, drawn_kills_of, kill_a_holder
from workloads.chaos.soak import soak
from workloads.chaos.toy import Layout
from workloads.parts import asked_of

PARTS = ("kills", "shards", "soak", "trace", "copies", "available", "kept", "regroup", "flat")
FOUR = Layout(dp=4, tp=1, pp=1)


def all_kills() -> int:
    """Every kill of every layout; the number of those that cost something."""
    return sum(_kills_of(layout, cases=kills_of(layout)) for layout in LAYOUTS)


def sharded_kills() -> int:
    """Kills where the optimizer state is cut; the number of those that cost more than they may."""
    failed = 0
    for layout in SHARDED:
        one = _kills_of if layout.shard_optimizer == "mirrored" else _holders_killed
        failed += one(layout, cases=drawn_kills_of(layout))
    return failed


def _holders_killed(layout: Layout, *, cases: Iterable[Kill]) -> int:
    began, done = time.monotonic(), list[Restored]()
    with opened(layout) as arena:
        calm = arena.run()
        every = chain(cases, last_kills_of(layout))
        failed = _failed(every, lambda case: done.append(kill_a_holder(arena, case, calm=calm)))
    again, seconds = Counter(one.again for one in done), sorted(one.repair_s for one in done)
    print(
        f"{layout}: {len(done)} kills of an only holder in {time.monotonic() - began:.0f} s, state from copies each "
        f"time; steps done again {dict(sorted(again.items()))} (steps: kills); from the loss to the next commit "
        f"{seconds[len(seconds) // 2]:.2f} s median, {seconds[-1]:.2f} s most",
        flush=True,
    )
    return failed


def _kills_of(layout: Layout, *, cases: Iterable[Kill]) -> int:
    began, verdicts = time.monotonic(), list[Verdict]()
    with opened(layout) as arena:
        calm = arena.run()
        failed = _failed(last_kills_of(layout), lambda case: kill_last(arena, case, calm=calm))
        failed += _failed(cases, lambda case: verdicts.append(kill(arena, case, calm=calm)))
    by_time = sorted(verdicts, key=lambda verdict: verdict.repair_s)
    middle, slowest = by_time[len(by_time) // 2], by_time[-1]
    print(
        f"{layout}: {len(verdicts)} kills cost nothing in {time.monotonic() - began:.0f} s; from the last sign of "
        f"life to the commit {middle.repair_s:.2f} s median, {slowest.repair_s:.2f} s most ({slowest.kill.order})",
        flush=True,
    )
    return failed


def _failed(cases: Iterable[Kill], carry_out: Callable[[Kill], object]) -> int:
    """Carry all of them out; how many were not as they have to be, each of which is told."""
    failed = 0
    for case in cases:
        try:
            carry_out(case)
        except AssertionError as error:
            failed += 1
            print(f"NOT SO: {case}", *traceback.format_exception(error, limit=-1), flush=True)
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
    if "flat" in parts:
        yield from map(str, flat_runs())


def main(words: list[str]) -> int:
    """Run the parts that are named, or all."""
    parts = asked_of(words, program="workloads.chaos", parts=PARTS)
    with fork_server():
        failed = all_kills() if "kills" in parts else 0
        failed += sharded_kills() if "shards" in parts else 0
        if "soak" in parts:
            print(soak(steps=400, faults=200, seed=0), flush=True)
            print(f"without copies: {soak(steps=120, faults=40, seed=1, copies_every=0)}", flush=True)
        if "trace" in parts:
            print(f"trace: {replay(drawn(changes=60, seed=0), speed=100.0, steps=400)}", flush=True)
        if "copies" in parts:
            for every in (1, 4):
                print(stalled(steps=20, every=every), flush=True)
            print(outlived(Layout(dp=1, tp=1, pp=2), at_once=1, losses=6), flush=True)
            print(outlived(Layout(dp=1, tp=1, pp=3), at_once=2, losses=4), flush=True)
        for line in measures(parts):
            print(line, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(1 if main(sys.argv[1:]) else 0)
