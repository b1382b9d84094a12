"""Nodes come and go as a trace says, in compressed time; the run ends as if they had not.

    t_s,n_nodes       30 nodes become the arena's seven; so many as the trace loses are killed with all that is on them,
    0,30              and so many as it gains come back, as fresh ones
    601,29

Without a file the trace is drawn: gaps, bulk losses and as many bulk returns as in public traces of spot instances.
"""

import random
import signal
import time
from collections import Counter
from itertools import pairwise

from raymega.sim.node_trace import NodeTrace
from workloads.chaos.arena import Arena
from workloads.chaos.hands import ProcessHands
from workloads.chaos.soak import LAYOUT, STANDBYS, Soaked, endure

GAP_S = 250.0  # between two changes, on average
SIZES = {1: 62, 2: 24, 3: 11, 4: 4, 5: 3}  # of a change, in nodes: how often
MOST, LEAST = LAYOUT.size + STANDBYS, 3


def drawn(*, changes: int, seed: int) -> NodeTrace:
    """A trace of `MOST` nodes; it falls and rises alike."""
    rng, rows = random.Random(seed), [(0.0, MOST)]
    for _ in range(changes):
        t, nodes = rows[-1]
        by = rng.choices(list(SIZES), list(SIZES.values()))[0] * rng.choice((-1, 1))
        after = min(MOST, max(LEAST, nodes + by))
        rows.append((t + rng.expovariate(1 / GAP_S), after if after != nodes else max(LEAST, nodes - 1)))
    return NodeTrace(rows=tuple(rows), end_s=rows[-1][0])


def replay(trace: NodeTrace, *, speed: float, steps: int, seed: int = 0) -> Soaked:
    """Replay `trace`, `speed` times as fast. Raises: AssertionError as `soak` does."""
    struck: Counter[str] = Counter()
    return endure(
        lambda arena, hands: _follow(arena, hands, struck, trace=trace, speed=speed, seed=seed),
        steps=steps, struck=struck,
    )  # fmt: skip


def _follow(
    arena: Arena, hands: ProcessHands, struck: Counter[str], *, trace: NodeTrace, speed: float, seed: int
) -> None:
    rng, there = random.Random(seed), sorted(arena.devices)
    with hands.changed:
        hands.changed.wait_for(lambda: bool(hands.kept.records))
    for (before_s, _), (t_s, nodes) in pairwise(trace.rows):
        time.sleep((t_s - before_s) / speed)
        if len(hands.kept.records) >= arena.config.training.steps - 2:
            return
        wanted = min(MOST, max(LEAST, round(nodes * MOST / trace.most)))
        leaving = rng.sample(there, max(0, len(there) - wanted))
        away = sorted(set(arena.devices) - set(there))
        coming = rng.sample(away, max(0, wanted - len(there)))
        there = sorted((set(there) - set(leaving)) | set(coming))
        if leaving or coming:
            hands.tell_nodes({node: arena.devices[node] for node in there})
        for worker in arena.crew.names:
            if arena.crew.node_of(worker) in leaving:
                arena.crew.signal(worker, signal.SIGKILL)
        struck["nodes lost"] += len(leaving)
        struck["nodes back"] += len(coming)
