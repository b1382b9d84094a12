"""How many nodes are there, and when: a file of changes, or failures drawn by chance.

    t_s,n_nodes        0 s  30 nodes
    0,30             601 s  29           at the time of a row so many nodes are there, until the next
    601,29          1202 s  28
    1202,28

Failures: gaps between them are exponential with the mean time of the whole cluster, as where each node fails by
itself; a node that fails comes back, as a fresh one, after the time that a repair takes.
"""

import random
import re
from dataclasses import dataclass
from itertools import pairwise

from raymega.config.fault import counted
from raymega.errors import ConfigError
from raymega.plan.plan import WorkerId

SHOWN = 40  # characters of a line that is wrong
MOST_CHANGES, MOST_NODES, LONGEST_S = 100_000, 100_000, 520 * 604800.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_UNIT_S = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTrace:
    """(seconds, nodes from then on), by time, from 0 s; it ends at `end_s`.

    `leaving`: (seconds of a row, workers whose nodes go then); nodes of others stay. Without a row, nobody knows.
    """

    rows: tuple[tuple[float, int], ...]
    end_s: float
    leaving: tuple[tuple[float, tuple[WorkerId, ...]], ...] = ()

    @property
    def most(self) -> int:
        return max(nodes for _, nodes in self.rows)

    @property
    def changes(self) -> int:
        """Rows at which the number changes."""
        return sum(a != b for (_, a), (_, b) in pairwise(self.rows))

    def node_seconds(self) -> float:
        """All nodes' time up to the end."""
        ends = [*(t for t, _ in self.rows[1:]), self.end_s]
        return sum(nodes * (end - t) for (t, nodes), end in zip(self.rows, ends, strict=True))

    @property
    def average(self) -> float:
        return self.node_seconds() / self.end_s


def read_trace(text: str, *, source: str) -> NodeTrace:
    """Read a trace.

    Args:
        source: its name, for messages.
    Raises: ConfigError with the line that is wrong.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if not lines or lines[0].replace(" ", "") != "t_s,n_nodes":
        first = repr(lines[0]) if lines else "nothing"
        raise ConfigError(f"{source} begins with {first}; a trace begins with the line t_s,n_nodes. Add it.")
    rows = [_row(line, source=source, number=number) for number, line in enumerate(lines[1:], start=2)]
    if len(rows) < 2 or rows[0][0] != 0:
        raise ConfigError(
            f"{source} has {counted(len(rows), noun='row')}; it begins at 0 s and has one at its end. Add them."
        )
    for number, (before, after) in enumerate(pairwise(rows), start=3):
        if after[0] <= before[0]:
            raise ConfigError(
                f"{source}, line {number}: {after[0]:g} s comes after {before[0]:g} s; rows are in order of time. "
                "Sort them."
            )
    if not any(nodes for _, nodes in rows):
        raise ConfigError(f"{source} has no node at any time; nothing can run on it. Give at least one.")
    return NodeTrace(rows=tuple(rows), end_s=rows[-1][0])


def failing(*, nodes: int, mtbf_s: float, duration_s: float, back_after_s: float | None, seed: int) -> NodeTrace:
    """Draw failures.

    Args:
        nodes: when all are well.
        mtbf_s: between two failures in the whole cluster, on average.
        back_after_s: from a failure until there is another node in its place; None: never.
    """
    for name, value in (("--mtbf", mtbf_s), ("--duration", duration_s), ("nodes", nodes)):
        if not value > 0:
            raise ConfigError(f"{name} is {value:g}; it has to be above zero. Give a time as 10m, or more nodes.")
    if duration_s / mtbf_s > MOST_CHANGES:
        many = f"{duration_s / mtbf_s:,.0f} failures in {duration_s:g} s"
        raise ConfigError(
            f"--mtbf {mtbf_s:g} s means {many}; up to {MOST_CHANGES:,} can be simulated. Give a longer --mtbf, or a "
            "shorter --duration."
        )
    dice, t, events = random.Random(seed), 0.0, list[tuple[float, int]]()
    while (t := t + dice.expovariate(1 / mtbf_s)) < duration_s:
        events.append((t, -1))
        if back_after_s is not None and t + back_after_s < duration_s:
            events.append((t + back_after_s, 1))
    rows, there = [(0.0, nodes)], nodes
    for at_s, change in sorted(events):
        there = max(0, there + change) if change < 0 else min(nodes, there + change)
        rows.append((at_s, there))
    return NodeTrace(rows=tuple(rows), end_s=duration_s)


def steady(*, nodes: int, duration_s: float) -> NodeTrace:
    """Nothing fails."""
    return NodeTrace(rows=((0.0, nodes),), end_s=duration_s)


def duration_s(word: str, *, option: str) -> float:
    """Read `90`, `10m`, `1.5h`, `7d`.

    >>> duration_s("10m", option="--mtbf")
    600.0
    """
    found = _DURATION.fullmatch(word.strip())
    if found is None or float(found[1]) <= 0:
        raise ConfigError(f"{option}: {word!r} found; a time above zero is wanted, as 90s, 10m, 1.5h or 7d.")
    seconds = float(found[1]) * _UNIT_S[found[2]]
    if seconds > LONGEST_S:
        raise ConfigError(f"{option}: {word!r} is above ten years. Give a shorter time.")
    return seconds


def _row(line: str, *, source: str, number: int) -> tuple[float, int]:
    cells, line = line.split(","), line if len(line) <= SHOWN else f"{line[:SHOWN]}.."
    try:
        t_s, nodes = float(cells[0]), int(cells[1])
    except (ValueError, IndexError) as error:
        raise ConfigError(f"{source}, line {number}: {line!r}; seconds and nodes are wanted, as in 601,29.") from error
    if len(cells) != 2 or not 0 <= t_s <= LONGEST_S or not 0 <= nodes <= MOST_NODES:
        raise ConfigError(
            f"{source}, line {number}: {line!r}; two numbers from zero on are wanted, as in 601,29, "
            f"up to {LONGEST_S:.0f} s and {counted(MOST_NODES, noun='node')}."
        )
    return t_s, nodes
