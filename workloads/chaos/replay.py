"""Nodes come and go as a trace says, in compressed time; the run ends as if they had not.

    t_s,n_nodes       30 nodes become the arena's seven; so many as the trace loses are killed with all that is on them,
    0,30              and so many as it gains come back, as fresh ones
    601,29

Without a file the trace is drawn: gaps, bulk losses and as many bulk returns as in public traces of spot instances.
"""

import random
from collections import Counter

from raymega.sim.node_trace import NodeTrace
from raymega.sim.trace_course import course_of
from workloads.chaos.arena import Arena
from workloads.chaos.hands import ProcessHands
from workloads.chaos.soak import LAYOUT, STANDBYS, Soaked, endure

GAP_S = 280.0  # between two changes, on average
SIZES = {1: 86, 2: 35, 3: 16, 4: 5, 5: 5}  # of a change, in nodes: how often
MOST, LEAST = LAYOUT.size + STANDBYS, 3
NODES = 30  # of a drawn trace


def drawn(*, changes: int, seed: int) -> NodeTrace:
    """A trace of `NODES` nodes, at least half of which are there; it falls and rises alike."""
    rng, rows = random.Random(seed), [(0.0, NODES)]
    for _ in range(changes):
        t, nodes = rows[-1]
        by = rng.choices(list(SIZES), list(SIZES.values()))[0] * rng.choice((-1, 1))
        after = nodes + by if NODES // 2 <= nodes + by <= NODES else nodes - by
        rows.append((t + rng.expovariate(1 / GAP_S), after))
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
    there, passed_s = set(arena.devices), 0.0
    with hands.changed:
        hands.changed.wait_for(lambda: bool(hands.kept.records))
    for turnover in course_of(trace, places=tuple(arena.devices), least=LEAST, speed=speed, seed=seed):
        if hands.is_near_the_end(within_s=turnover.at_s - passed_s):
            return
        passed_s, there = turnover.at_s, (there - set(turnover.leaving)) | set(turnover.coming)
        for node in turnover.leaving:
            arena.crew.end_node(node)
        hands.tell_nodes({node: arena.devices[node] for node in there})
        struck["nodes lost"] += len(turnover.leaving)
        struck["nodes back"] += len(turnover.coming)
