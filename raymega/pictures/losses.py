"""The loss over steps, and under it what happened, a row for each kind.

    8 |\\
      | \\___           loss (nats a token)
    4 |     \\________
      +-----------------  step
    worker lost     o          each mark stands at its step, and says more to a pointer that rests on it
    step repaired   o
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from raymega.pictures.colors import EVENTS
from raymega.pictures.scale import Scale, step_ticks, ticks, value_words
from raymega.pictures.svg import FAINT, WIDTH, Svg, curve, dot, legend, line, picture, text

LEFT, RIGHT, TOP, PLOT_H, ROW_H, FOOT = 158, 32, 26, 190, 18, 12
MOST_LINES = 12  # of one kind through the plot; of more there are only the marks
MOST_POINTS = 600  # of a curve, two for each column of the picture at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line of a plot: (step, value), by step; `dotted`: a mark at each value instead of a line."""

    label: str
    points: tuple[tuple[int, float], ...]
    color: str = "#3b6fa8"
    dashed: bool = False
    dotted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened. `kind`: a key of `colors.EVENTS`."""

    step: int
    kind: str
    words: str


def loss_picture(curves: Sequence[Curve], *, marks: Iterable[Mark] = ()) -> Svg:
    """Losses over steps, with what happened at which step."""
    curves = [_fit_to_draw(curve) for curve in curves]
    finite = [point for curve in curves for point in curve.points]
    happened = tuple(marks)
    kinds = [kind for kind in EVENTS if any(mark.kind == kind for mark in happened)]
    height = TOP + PLOT_H + 34 + ROW_H * len(kinds) + FOOT
    if not finite:
        words = text("no step is committed yet", x=LEFT, y=TOP + 20, color=FAINT)
        return picture([words], height=TOP + 34, title="loss over steps")
    steps = [step for step, _ in finite] + [mark.step for mark in happened]
    across = Scale(low=max(0, min(steps)), high=max(steps), begin=LEFT, end=WIDTH - RIGHT)
    parts = [*_frame(finite, across), *legend([(c.color, c.label) for c in curves], x=LEFT, y=16)]
    up = _upright(finite)
    for one in curves:
        parts += _drawn(one, across, up)
    for row, kind in enumerate(kinds):
        parts += _row(kind, [mark for mark in happened if mark.kind == kind], across, y=TOP + PLOT_H + 50 + ROW_H * row)
    return picture(parts, height=height, title="loss over steps")


def thinned(points: Sequence[tuple[int, float]], *, most: int = MOST_POINTS) -> list[tuple[int, float]]:
    """The lowest and the highest of each of as many stretches as can be seen: no peak is lost."""
    if len(points) <= most:
        return list(points)
    apart = len(points) / (most // 2)
    kept: list[tuple[int, float]] = [points[0]]
    for number in range(most // 2):
        stretch = points[int(number * apart) : int((number + 1) * apart)]
        kept += sorted({min(stretch, key=lambda point: point[1]), max(stretch, key=lambda point: point[1])})
    return [*kept, points[-1]]


def _fit_to_draw(one: Curve) -> Curve:
    """What can be seen of it: no value that is not finite, and of many points as many as there are columns."""
    return replace(one, points=tuple(thinned([point for point in one.points if math.isfinite(point[1])])))


def _upright(points: Sequence[tuple[int, float]]) -> Scale:
    low, high = min(value for _, value in points), max(value for _, value in points)
    room = (high - low) * 0.04 or 0.5
    return Scale(low=low - room, high=high + room, begin=TOP + PLOT_H, end=TOP)


def _frame(points: Sequence[tuple[int, float]], across: Scale) -> list[str]:
    """Axes with their round values."""
    up, bottom = _upright(points), TOP + PLOT_H
    values = ticks(up.low, up.high)
    parts = []
    for value in values:
        parts += [
            line(x=LEFT, y=up.at(value), to_x=WIDTH - RIGHT, to_y=up.at(value)),
            text(value_words(value, among=values), x=LEFT - 8, y=up.at(value) + 4, anchor="end", color=FAINT),
        ]
    for step in step_ticks(int(across.low), int(across.high)):
        parts += [
            line(x=across.at(step), y=bottom, to_x=across.at(step), to_y=bottom + 5, color=FAINT),
            text(f"{step:,}", x=across.at(step), y=bottom + 18, anchor="middle", color=FAINT),
        ]
    return [
        *parts,
        line(x=LEFT, y=bottom, to_x=WIDTH - RIGHT, to_y=bottom, color=FAINT),
        text("loss", x=8, y=TOP + PLOT_H / 2 - 6, bold=True),
        text("nats a token", x=8, y=TOP + PLOT_H / 2 + 9, color=FAINT),
        text("step", x=8, y=bottom + 18, bold=True),
    ]


def _drawn(one: Curve, across: Scale, up: Scale) -> list[str]:
    places = [(across.at(step), up.at(value)) for step, value in one.points]
    if one.dotted or len(places) == 1:
        return [dot(x=x, y=y, color=one.color, radius=3) for x, y in places]
    return [curve(places, color=one.color, dashed=one.dashed)]


def _row(kind: str, marks: Sequence[Mark], across: Scale, *, y: float) -> list[str]:
    """One kind of event: its name, its line, its marks."""
    words = kind if len(marks) == 1 else f"{kind} ({len(marks)})"
    parts = [
        text(words, x=8, y=y + 4, size=11, color=EVENTS[kind]),
        line(x=LEFT, y=y, to_x=WIDTH - RIGHT, to_y=y, color="#eeeeee"),
    ]
    seen = {round(across.at(max(mark.step, across.low))): mark for mark in marks}  # one for each place that can be seen
    for x, mark in seen.items():
        if len(marks) <= MOST_LINES:
            parts.append(line(x=x, y=TOP, to_x=x, to_y=TOP + PLOT_H, color=EVENTS[kind], width=0.6, dashed=True))
        parts.append(dot(x=x, y=y, color=EVENTS[kind], hint=f"{kind}, step {mark.step}: {mark.words}"))
    return parts
