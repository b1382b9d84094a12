"""A run as a notebook shows it: a line of where it stands, its mesh, its loss with what happened, its goodput.

No scripts and no widgets: text and inline SVG, so that it is seen wherever the notebook is.
"""

import html
import time
from dataclasses import dataclass

from raymega.control.goodput import GOOD
from raymega.driver.records.accounting import history_of
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.line_shapes import EVENT_LINE
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import RunStatus, status_of, status_with
from raymega.driver.records.steps import steps_of
from raymega.pictures.losses import Curve, loss_picture
from raymega.pictures.meshes import mesh_picture
from raymega.pictures.shares import shares_picture
from raymega.pictures.svg import WIDTH, Svg
from raymega.report.chronicle import marks_of

MESH = "Who trains: a box for each worker, a column for each stage of the model, a row for each replica of it."
SPOT = " Nodes marked spot may be taken back at any time."


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawn:
    """What prints itself in a terminal, and shows itself in a notebook."""

    text: str
    html: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def run_html(run: RunDirectory) -> str:
    """All of it; of a run that has not begun, only where it stands."""
    if not run.is_known():
        return page(f"<b>{html.escape(run.path.name)}</b> is starting")
    if not run.is_begun():
        return page(_head(status_of(run)))
    history = history_of(run)
    status = status_with(history.progress, run=run, now=time.time())
    progress = history.progress
    if progress is None or progress.plan is None:
        return page(_head(status))
    marks = marks_of(read_lines(run.events, shape=EVENT_LINE), history=history)
    nodes, spot = {seat.worker: seat.node for seat in progress.seats}, progress.spot
    return page(
        _head(status),
        captioned(mesh_picture(progress.plan, nodes=nodes, spot=spot), f"{MESH}{SPOT if spot else ''}"),
        loss_picture([Curve(label="training", points=steps_of(run.metrics).losses)], marks=marks),
        shares_picture(status.worker_s, workers={}, good=GOOD),
    )


def plot_of(run: RunDirectory, *, beside: RunDirectory | None) -> Svg:
    """The loss of a run, with what happened; that of another, dashed."""
    curves = [Curve(label=run.path.name, points=steps_of(run.metrics).losses)]
    if beside is not None:
        others = steps_of(beside.metrics).losses
        curves.append(Curve(label=beside.path.name, points=others, color="#d1651b", dashed=True))
    if not run.is_begun():
        return loss_picture(curves)
    return loss_picture(curves, marks=marks_of(read_lines(run.events, shape=EVENT_LINE), history=history_of(run)))


def _head(status: RunStatus) -> str:
    """Where it stands, in two lines."""
    code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
    loss = "" if status.loss is None else f" \u00b7 loss {status.loss:.4f}"
    speed = "" if status.tokens_per_s is None else f" \u00b7 {status.tokens_per_s:,.0f} tokens/s"
    mesh = "" if status.mesh is None else f" \u00b7 {status.mesh}"
    words = f"{status.standing}{code} \u00b7 step {status.step:,} of {status.steps:,}{loss}{speed}{mesh}"
    said = f'<br><span style="color:#666">{html.escape(status.reason)}</span>' if status.reason else ""
    return f"<b>{html.escape(status.name)}</b> \u00b7 {html.escape(words)}{said}"


def captioned(picture: Svg, words: str) -> str:
    """A picture below words that are HTML."""
    return f'<div style="color:#666;max-width:{WIDTH}px;margin-bottom:4px">{words}</div>{picture.text}'


def page(head: str, *parts: Svg | str) -> str:
    """White paper, whatever the notebook's own colours are."""
    shown = "".join(f'<div style="margin-top:10px">{part}</div>' for part in parts)
    style = "font-family:sans-serif;font-size:14px;color:#222;background:#fff;padding:8px"
    return f'<div style="{style}">{head}{shown}</div>'
