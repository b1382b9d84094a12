"""Where worker-seconds went: a bar for all of them together, one for each worker.

all    |######## useful ########|## bubble ##|exch|start|rep|     goodput 84 % of 1,204 worker-seconds
w0     |##########              |            |    |     |   |
"""

from collections.abc import Mapping

from raymega.config.fault import counted
from raymega.pictures.colors import CATEGORIES
from raymega.pictures.scale import Scale, time_words
from raymega.pictures.svg import FAINT, PAPER, WIDTH, Svg, box, fits, legend, line, picture, text

LEFT, RIGHT, BAR_H, ROW_H = 72, 32, 30, 17
MOST_ROWS = 16
A_ROW = 6  # categories of the legend


def shares_picture(
    spent: Mapping[str, float], *, workers: Mapping[str, Mapping[str, float]], good: tuple[str, ...]
) -> Svg:
    """Worker-seconds by category.

    Args:
        spent: of the run; the values add up to all there were.
        workers: the same of each worker; of many, the first.
        good: the categories that entered a committed step.
    """
    total_s = sum(spent.values())
    if total_s <= 0:
        return picture([text("no time is known of yet", x=8, y=20, color=FAINT)], height=34, title="goodput")
    known = [name for name in CATEGORIES if spent.get(name, 0.0) > 0]
    good_s = sum(spent.get(name, 0.0) for name in good)
    parts = [
        text(f"goodput {good_s / total_s:.1%}", x=LEFT, y=16, bold=True),
        text(f"of {total_s:,.1f} worker-seconds entered a committed step", x=LEFT + 108, y=16, color=FAINT),
        text("all", x=8, y=26 + BAR_H / 2 + 4, bold=True),
        *_bar(spent, known, y=24, height=BAR_H, named=True),
    ]
    across = Scale(low=0, high=total_s, begin=LEFT, end=WIDTH - RIGHT)
    edge = across.at(good_s)
    parts.append(line(x=edge, y=20, to_x=edge, to_y=28 + BAR_H, color="#111111", width=1.5))
    order = sorted(workers, key=lambda worker: (len(worker), worker))
    rows = [(worker, workers[worker]) for worker in order[:MOST_ROWS]] if len(workers) > 1 else []
    y = 24.0 + BAR_H + 10
    for worker, seconds in rows:
        parts += [text(worker, x=8, y=y + 11, size=11), *_bar(seconds, known, y=y, height=ROW_H - 4, named=False)]
        y += ROW_H
    if rows and len(workers) > len(rows):
        parts.append(
            text(f"and {counted(len(workers) - len(rows), noun='worker')} more", x=LEFT, y=y + 11, color=FAINT)
        )
        y += ROW_H
    for first in range(0, len(known), A_ROW):
        y += 18
        parts += legend([(CATEGORIES[name], name) for name in known[first : first + A_ROW]], x=LEFT, y=y)
    return picture(parts, height=y + 12, title="where the worker-seconds went")


def _bar(seconds: Mapping[str, float], known: list[str], *, y: float, height: float, named: bool) -> list[str]:
    total_s = sum(seconds.values())
    across = Scale(low=0.0, high=total_s or 1.0, begin=LEFT, end=WIDTH - RIGHT)
    parts, passed_s = list[str](), 0.0
    for name in known:
        spent_s = seconds.get(name, 0.0)
        if spent_s <= 0:
            continue
        x, width = across.at(passed_s), across.at(passed_s + spent_s) - across.at(passed_s)
        share = f"{spent_s / total_s:.1%}"
        parts.append(
            box(x=x, y=y, width=width, height=height, color=CATEGORIES[name],
                hint=f"{name}: {share}, {time_words(spent_s)} of workers"),
        )  # fmt: skip
        words = f"{name} {share}"
        if named and fits(words, width=width):
            ink = PAPER if name in ("useful", "exchange", "repair", "checkpoint", "replay") else "#222222"
            parts.append(text(words, x=x + 6, y=y + height / 2 + 4, color=ink))
        passed_s += spent_s
    return parts
