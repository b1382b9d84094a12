"""Trains `nano` in each number format beside fp32, and says how far apart they end. See README.md."""

import os
import sys
from statistics import mean

from workloads.formats.runs import VARIANTS, Trained, trained
from workloads.parts import asked_of

LAST_STEPS = 20
MOST_APART = 0.01


def main(names: list[str]) -> int:
    steps = int(os.environ.get("STEPS", "300"))
    chosen = asked_of(names, program="workloads.formats", parts=VARIANTS)
    exact = trained("fp32", steps=steps)
    print(_line("fp32", exact, beside=exact), flush=True)
    worst = 0.0
    for name in chosen:
        if name != "fp32":
            found = trained(name, steps=steps)
            print(_line(name, found, beside=exact), flush=True)
            worst = max(worst, abs(_end(found) / _end(exact) - 1))
    return 0 if worst <= MOST_APART else 1


def _end(run: Trained) -> float:
    return mean(run.losses[-LAST_STEPS:])


def _line(name: str, run: Trained, *, beside: Trained) -> str:
    apart, last = _end(run) / _end(beside) - 1, mean(run.losses[-3:])
    return (
        f"{name:<10} loss {_end(run):.4f} ({apart:+.3%} beside fp32), of the last three steps {last:.4f}; "
        f"{run.step_s:.3f} s and {run.ring_bytes / 1e6:,.2f} MB a step"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
