"""One step on the clock: what each worker, or each team, did when.

w0  stage 0   |F0|F1|F2|F3|    |B0|F4|B1|   ...  |reduce|apply|      computing
              |      .........                   |                   waiting, exchanging
w1  stage 1   |  |F0|B0|F1|B1| ...
              0 ms        100 ms        200 ms
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from raymega.pictures.colors import ACTIONS, PHASES
from raymega.pictures.scale import Scale, time_ticks, time_words
from raymega.pictures.svg import FAINT, PAPER, WIDTH, Svg, box, fits, legend, line, picture, text

LEFT, RIGHT, TOP, ROW_H, THIN_H = 150, 32, 28, 24, 7
MOST_ROWS = 24
ACTION = re.compile(r"(\d+)([FBIW])(\d+)")
WORDS = {"F": "forward", "B": "backward", "I": "backward, inputs", "W": "backward, weights"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of a row: an action as `0F3`, or a phase; `beside`: it goes on beside the computing."""

    name: str
    begin_s: float
    end_s: float
    beside: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one worker or team did."""

    label: str
    bars: tuple[Bar, ...]


def step_picture(rows: Sequence[Row], *, span_s: float | None = None) -> Svg:
    """Rows on one clock; of many, the first.

    Args:
        span_s: what the width stands for, so that two pictures can be compared; default: the longest of the rows.
    """
    end_s = span_s or max((bar.end_s for row in rows for bar in row.bars), default=0.0)
    across = Scale(low=0.0, high=end_s, begin=LEFT, end=WIDTH - RIGHT)
    shown = rows[:MOST_ROWS]
    names = {_kind(bar.name) for row in shown for bar in row.bars}
    entries = [(color, WORDS.get(kind, kind)) for kind, color in (ACTIONS | PHASES).items() if kind in names]
    parts = legend(entries, x=LEFT, y=15)
    for number, row in enumerate(shown):
        y = TOP + ROW_H * number
        parts.append(text(row.label, x=8, y=y + 12, size=11))
        for bar in row.bars:
            parts += _bar(bar, across, y=y)
    bottom = TOP + ROW_H * len(shown) + 2
    parts.append(line(x=LEFT, y=bottom, to_x=WIDTH - RIGHT, to_y=bottom, color=FAINT))
    for at in time_ticks(end_s):
        parts.append(text(time_words(at) if at else "0", x=across.at(at), y=bottom + 16, anchor="middle", color=FAINT))
        parts.append(line(x=across.at(at), y=bottom, to_x=across.at(at), to_y=bottom + 4, color=FAINT))
    height = bottom + 24
    if len(shown) < len(rows):
        parts.append(text(f"and {len(rows) - len(shown)} more", x=8, y=height + 4, color=FAINT))
        height += 14
    return picture(parts, height=height, title="a step on the clock")


def _bar(bar: Bar, across: Scale, *, y: float) -> list[str]:
    kind = _kind(bar.name)
    x, width = across.at(bar.begin_s), across.at(bar.end_s) - across.at(bar.begin_s)
    hint = f"{WORDS.get(kind, kind)} {bar.name}: {time_words(bar.end_s - bar.begin_s)} from {time_words(bar.begin_s)}"
    color = ACTIONS.get(kind) or PHASES.get(kind, "#bbbbbb")
    if bar.beside:
        return [box(x=x, y=y + ROW_H - THIN_H - 1, width=width, height=THIN_H - 1, color=color, hint=hint)]
    parts = [box(x=x, y=y, width=width, height=ROW_H - THIN_H - 2, color=color, hint=hint, edge=PAPER)]
    found = ACTION.fullmatch(bar.name)
    words = f"{kind}{found[3]}" if found else bar.name
    if fits(words, width=width, size=10):
        parts.append(text(words, x=x + width / 2, y=y + 11.5, anchor="middle", size=10, color=PAPER))
    return parts


def _kind(name: str) -> str:
    found = ACTION.fullmatch(name)
    return found[2] if found else name
