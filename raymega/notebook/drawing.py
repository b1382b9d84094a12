"""A run as a picture, for a notebook: text and inline SVG, no scripts.

    quick-otter  Training  step 120 of 200  loss 4.81      goodput 96 %
    +----------+----------+     \\
    | w0  s0   | w1  s1   |      \\__
    +----------+----------+         \\_____ loss         | | bars: what happened
"""

import html
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from raymega.plan.plan import Plan

STAGE_COLORS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756", "#72b7b2", "#eeca3b", "#9d755d")
EVENT_COLORS = {"StepRepaired": "#d62728", "WorkerLost": "#d62728", "Resized": "#1f77b4", "NodeDraining": "#ff7f0e"}
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 200, 52, 22
CELL_W, CELL_H = 132, 40
NODE_DIGITS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Svg:
    """A picture that shows itself in a notebook."""

    text: str

    def _repr_html_(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line of a plot: (step, value), by step."""

    label: str
    points: tuple[tuple[int, float], ...]
    color: str = "#333333"
    dashed: bool = False


def loss_picture(curves: Sequence[Curve], *, events: Iterable[dict[str, Any]] = ()) -> Svg:
    """Losses over steps, with a bar at the step of each event that has a colour."""
    points = [point for curve in curves for point in curve.points if math.isfinite(point[1])]
    if not points:
        return Svg(text="<p>no step is committed yet</p>")
    low, high = min(loss for _, loss in points), max(loss for _, loss in points)
    last = max(step for step, _ in points)
    span, steps = (high - low) or 1.0, max(last - 1, 1)

    def x(step: float) -> float:
        return LEFT + (WIDTH - LEFT - 8) * (step - 1) / steps

    def y(loss: float) -> float:
        return 8 + (HEIGHT - BOTTOM - 8) * (high - loss) / span

    parts = [_bar(event, x) for event in events if event.get("event") in EVENT_COLORS]
    for number, curve in enumerate(curves):
        path = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in curve.points if math.isfinite(loss))
        dash = ' stroke-dasharray="5 4"' if curve.dashed else ""
        parts.append(f'<polyline points="{path}" fill="none" stroke="{curve.color}" stroke-width="1.5"{dash}/>')
        parts.append(_text(curve.label, x=WIDTH - 10, y=20 + 14 * number, anchor="end", color=curve.color))
    parts += [
        _text(f"{high:.2f}", x=LEFT - 6, y=14, anchor="end"),
        _text(f"{low:.2f}", x=LEFT - 6, y=HEIGHT - BOTTOM, anchor="end"),
        _text("step 1", x=LEFT, y=HEIGHT - 6),
        _text(f"step {last}", x=WIDTH - 8, y=HEIGHT - 6, anchor="end"),
        _text("loss", x=LEFT - 6, y=HEIGHT // 2, anchor="end"),
    ]
    return Svg(text=_svg(parts, width=WIDTH, height=HEIGHT, title="loss over steps"))


def mesh_picture(plan: Plan, *, nodes: dict[str, str]) -> Svg:
    """Every worker of a plan, a row each replica, coloured by stage. `nodes`: worker -> its node."""
    mesh, parts = plan.mesh, list[str]()
    for rank, worker in enumerate(plan.workers):
        at = mesh.coord(rank)
        left, top = (at.stage * mesh.tp + at.shard) * CELL_W, at.replica * CELL_H
        lost = worker not in plan.living
        color = "#cccccc" if lost else STAGE_COLORS[at.stage % len(STAGE_COLORS)]
        where = "lost" if lost else nodes.get(worker, "")[:NODE_DIGITS]
        parts.append(
            f'<rect x="{left + 2}" y="{top + 2}" width="{CELL_W - 4}" height="{CELL_H - 4}" rx="4" fill="{color}"/>'
        )
        parts.append(_text(f"{worker}  stage {at.stage}", x=left + 10, y=top + 17, color="#ffffff"))
        parts.append(_text(f"shard {at.shard}  {where}", x=left + 10, y=top + 31, color="#ffffff"))
    size = {"width": mesh.pp * mesh.tp * CELL_W, "height": mesh.dp * CELL_H}
    return Svg(text=_svg(parts, title=f"mesh {mesh}", **size))


def page(title: str, *pictures: Svg) -> str:
    """Text above pictures."""
    shown = "".join(f"<div>{picture.text}</div>" for picture in pictures)
    return f'<div style="font-family:sans-serif"><pre>{html.escape(title)}</pre>{shown}</div>'


def _bar(event: dict[str, Any], x: Any) -> str:  # Any: a function of a step
    at, color = x(max(1, event["step"])), EVENT_COLORS[event["event"]]
    said = html.escape(f"{event['event']} at step {event['step']}: {event.get('reason', '')}")
    return (
        f'<line x1="{at:.1f}" x2="{at:.1f}" y1="4" y2="{HEIGHT - BOTTOM}" stroke="{color}" stroke-width="2" '
        f'opacity="0.5"><title>{said}</title></line>'
    )


def _text(text: str, *, x: float, y: float, anchor: str = "start", color: str = "#333333") -> str:
    return f'<text x="{x}" y="{y}" font-size="11" text-anchor="{anchor}" fill="{color}">{html.escape(text)}</text>'


def _svg(parts: Iterable[str], *, width: int, height: int, title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img"><title>{html.escape(title)}</title>{"".join(parts)}</svg>'
    )
