"""What was predicted beside what was measured: two bars each, on a scale of their own kind.

step  dp=2 tp=1 pp=2
....predicted....  0.36 s
====measured=========  0.41 s                                        x 1.13
"""

from collections.abc import Sequence
from dataclasses import dataclass

from raymega.pictures.scale import Scale, time_words
from raymega.pictures.svg import FAINT, LETTER_W, WIDTH, Svg, box, legend, picture, text

PREDICTED, MEASURED = "#b9c6d6", "#3b6fa8"
LEFT, ROOM, BAR_H, ROW_H, TOP = 8, 150, 12, 52, 28
MOST_ROWS = 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """`what` of `of`, in seconds."""

    what: str
    of: str
    predicted_s: float
    measured_s: float


def pairs_picture(rows: Sequence[Compared]) -> Svg:
    """Pairs of bars; of many, the first."""
    shown = rows[:MOST_ROWS]
    parts = legend([(PREDICTED, "predicted"), (MEASURED, "measured")], x=LEFT, y=14)
    parts.append(text("measured / predicted", x=WIDTH - 8, y=14, anchor="end", color=FAINT, size=11))
    for number, row in enumerate(shown):
        y = TOP + ROW_H * number
        alike = [one for one in rows if one.what == row.what]
        longest = max(max(one.predicted_s, one.measured_s) for one in alike)
        across = Scale(low=0.0, high=longest, begin=LEFT, end=WIDTH - ROOM)
        ratio = f"\u00d7 {row.measured_s / row.predicted_s:.2f}" if row.predicted_s > 0 else ""
        parts += [
            text(row.what, x=LEFT, y=y + 10, bold=True),
            text(row.of, x=LEFT + (len(row.what) + 1) * LETTER_W * 1.15, y=y + 10, color=FAINT),
            *_bar(row.predicted_s, across, y=y + 16, color=PREDICTED),
            *_bar(row.measured_s, across, y=y + 17 + BAR_H, color=MEASURED),
            text(ratio, x=WIDTH - 8, y=y + 32, anchor="end", bold=True),
        ]
    height = TOP + ROW_H * len(shown) + 4
    if len(shown) < len(rows):
        parts.append(text(f"and {len(rows) - len(shown)} more", x=8, y=height + 8, color=FAINT))
        height += 18
    return picture(parts, height=height, title="predicted beside measured")


def _bar(seconds: float, across: Scale, *, y: float, color: str) -> list[str]:
    end = across.at(seconds)
    return [
        box(x=LEFT, y=y, width=end - LEFT, height=BAR_H, color=color, hint=time_words(seconds)),
        text(time_words(seconds), x=end + 6, y=y + 9.5, size=11),
    ]
