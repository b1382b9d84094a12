"""A simulated run as text: what there was, how fast it trained, what it was kept from it by.

nodes   30 |############............##########|     eighths of the most
speed      |▇▇▇▇▇▇▇▇▇▇▇▆▆▆▆▅▅▅▅▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇|
paused     |     r       rm      m            |     m: state moved, r: regrouped
           0 s                             2.5 h
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from raymega.config.fault import counted
from raymega.control.goodput import CATEGORIES
from raymega.sim.node_trace import NodeTrace
from raymega.sim.recorder import COLUMNS, Recorder
from raymega.sim.simulate import Simulation

LEVELS = " ▁▂▃▄▅▆▇█"
SHOWN_STRETCHES = 12


def drawn(done: Simulation) -> str:
    """The run over time, one column for each of equal parts of it."""
    trace, seen = done.scenario.trace, done.seen
    width_s = trace.end_s / COLUMNS
    speed = [work * done.full_step_s / width_s for work in seen.work]
    rows = (
        ("nodes", str(trace.most), _bars([many / trace.most for many in _averages(trace, width_s)])),
        ("speed", "", _bars(speed)),
        ("paused", "", _pauses(seen)),
    )
    lines = [f"{name:<7}{value:>7} |{cells}|" for name, value, cells in rows]
    return "\n".join([*lines, f"{'':<15} 0{time_words(trace.end_s):>{COLUMNS - 1}}"])


def category_lines(done: Simulation) -> Iterable[str]:
    """Where the worker-seconds went, in parts that add up to all of them; beside them, what was no worker's."""
    spent = done.seen.goodput
    for name in CATEGORIES:
        hours = spent.seconds[name] / 3600 * done.scenario.team
        if hours > 0:
            yield f"  {name:<12} {hours:>14,.1f} h {spent.share_of(name):>8.2%}"
    if done.spare_hours > 0:
        yield f"  {'in no plan':<12} {done.spare_hours:>14,.1f} h of {done.device_hours:,.1f} device-hours"
    if spent.without_nodes_s > 0:
        yield f"  no node to run on for {time_words(spent.without_nodes_s)}"


def stretch_lines(done: Simulation) -> Iterable[str]:
    """The plans, one after the other."""
    stretches, team = done.seen.stretches, done.scenario.team
    for stretch in stretches[:SHOWN_STRETCHES]:
        mesh = replace(stretch.plan.mesh, tp=stretch.plan.mesh.tp * team)
        lost = f", without {len(stretch.plan.lost)} of its teams" if stretch.plan.lost else ""
        yield f"  {time_words(stretch.t_s):>9}  {mesh}  {counted(stretch.workers * team, noun='device')}{lost}"
    if len(stretches) > SHOWN_STRETCHES:
        yield f"  and {len(stretches) - SHOWN_STRETCHES} more"


def time_words(seconds: float) -> str:
    """`45 s`, `10 min`, `11.4 h`, `7 d`."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{round(seconds / size, 1):g} {unit}"
    return f"{round(seconds, 1):g} s"


def _bars(shares: Iterable[float]) -> str:
    top = len(LEVELS) - 1
    return "".join(LEVELS[min(top, max(0, round(share * top)))] for share in shares)


def _pauses(seen: Recorder) -> str:
    """The longer of the two in each column, where it took any time."""
    pairs: Sequence[tuple[float, float]] = list(zip(seen.regroup_s, seen.move_s, strict=True))
    return "".join(" " if max(pair) <= 0 else "r" if pair[0] >= pair[1] else "m" for pair in pairs)


def _averages(trace: NodeTrace, width_s: float) -> list[float]:
    """Nodes in each column, on average."""
    ends = [*(t for t, _ in trace.rows[1:]), trace.end_s]
    columns = [0.0] * COLUMNS
    for (begin, nodes), end in zip(trace.rows, ends, strict=True):
        for column in range(int(begin / width_s), min(COLUMNS - 1, int(end / width_s)) + 1):
            inside = min(end, (column + 1) * width_s) - max(begin, column * width_s)
            columns[column] += nodes * max(0.0, inside) / width_s
    return columns
