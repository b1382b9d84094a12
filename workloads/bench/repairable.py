"""What it costs that a broken step can be repaired: the same workers with the boundary log and without, in turn.

with      elastic.boundary_log=device    each message is kept until its step commits
without   elastic.boundary_log=off       its memory is used again once it is received; a broken step is lost

Both make one copy of each message, which a send needs anyway; so the time should be the same, and bytes are the price.
"""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from raymega.config.schema import Config
from workloads.bench.pairs import Outcome, alternate
from workloads.bench.raymega_side import raymega_workers
from workloads.bench.settings import Settings, plan_of

GOAL = 0.99
WORKERS = 4  # two stages, once with and once without


def repairable_lines(settings: Settings) -> Iterator[str]:
    """Run two stages of each shape both ways; Ray has room for `WORKERS`."""
    yield "\nrepairable / not repairable, tokens/s, two stages; median of pairs with its 95 % interval"
    for shape in settings.shapes:
        config = settings.config(shape, "pipeline")
        outcome, kept, travelling = compare(config, num_pairs=settings.pairs[shape], block_s=settings.block_s)
        verdict = "met" if outcome.ratio.low >= GOAL else "missed"
        yield (
            f"  {shape:<6} {outcome.ratio}  goal {GOAL} {verdict}  A/A {outcome.same}  processor {outcome.work}  "
            f"{len(outcome.raymega)} pairs; each worker holds {kept:,} bytes, without {travelling:,}"
        )


def compare(config: Config, *, num_pairs: int, block_s: float) -> tuple[Outcome, int, int]:
    """(times, bytes held with the log, bytes held without)."""
    plan = plan_of(config)
    without = config.model_copy(update={"elastic": config.elastic.model_copy(update={"boundary_log": "off"})})
    with ExitStack() as stack:
        sides = []
        for name, each in (("k", config), ("o", without)):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rm-bench-"))
            named = replace(plan, workers=tuple(f"{name}{worker}" for worker in plan.workers))
            sides.append(stack.enter_context(raymega_workers(each, named, folder=folder)))
        outcome = alternate(*sides, precision="fp32", num_pairs=num_pairs, block_s=block_s, tell=_tell)
        kept, travelling = (side.log_bytes for side in sides)
    return outcome, kept, travelling


def _tell(line: str) -> None:
    print(f"  {line.replace('raymega', 'with').replace('peer', 'without')}", flush=True)
