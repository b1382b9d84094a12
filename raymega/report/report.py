"""`raymega report RUN`: everything that a run's directory tells, as one page for people.

run directory --> history, steps, events, seconds, trace, pairs --> sections --> RUNDIR/report.html

Nothing is asked of the run itself: it may be going on, over, lost, or on another machine.
"""

import html
import time
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from raymega.config.fault import counted
from raymega.config.schema import Config
from raymega.control.goodput import GOOD
from raymega.driver.records.accounting import history_of
from raymega.driver.records.history import History
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.line_shapes import EVENT_LINE, Line
from raymega.driver.records.run_dir import RunDirectory, write_whole
from raymega.driver.records.run_status import RunStatus, status_with
from raymega.driver.records.steps import Steps, steps_of
from raymega.pictures.colors import CATEGORIES, EVENTS
from raymega.pictures.losses import Curve, loss_picture
from raymega.pictures.meshes import mesh_history_picture, mesh_picture
from raymega.pictures.pairs import Compared, pairs_picture
from raymega.pictures.scale import time_words
from raymega.pictures.shares import shares_picture
from raymega.pictures.steps import step_picture
from raymega.report.chronicle import Entry, entries_of, marks_of
from raymega.report.foretold import Pair, foretold_of
from raymega.report.on_the_clock import measured_step, predicted_step
from raymega.report.page import Section, Tile, figure, folded, page, swatch, table
from raymega.report.words import CATEGORY_WORDS, LEADS

FILE = "report.html"
MOST_ENTRIES = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What was read of a run."""

    run: RunDirectory
    config: Config
    history: History
    status: RunStatus
    steps: Steps
    events: tuple[Line, ...]
    pairs: tuple[Pair, ...]
    cluster: str | None


def write_report(run: RunDirectory, *, cluster: str | None = None, out: Path | None = None) -> Path:
    """Write the page into the run's directory, or to `out`; returns the file. Raises: StateError, ConfigError."""
    file = (out or run.path / FILE).resolve()
    write_whole(file, report_of(run, cluster=cluster, now=time.time()))
    return file


def report_of(run: RunDirectory, *, cluster: str | None, now: float) -> str:
    """The page of a run.

    Args:
        cluster: what its step is predicted on, as for `raymega plan`; None: CPU workers of this machine.
        now: unix time.
    """
    history, config = history_of(run), run.read_config()
    steps, events = steps_of(run.metrics), tuple(read_lines(run.events, shape=EVENT_LINE))
    told = Told(
        run=run,
        config=config,
        history=history,
        status=status_with(history.progress, run=run, now=now),
        steps=steps,
        events=events,
        pairs=foretold_of(history.progress, steps=steps.recent, events=events, config=config, cluster=cluster),
        cluster=cluster,
    )
    sections = (_loss(told), _goodput(told), _mesh(told), _step(told), _pairs(told), _decisions(told))
    return page(
        title=f"Run {told.status.name}",
        standing=_standing(told.status),
        tiles=_tiles(told),
        sections=[section for section in sections if section.parts],
        foot=f"Made by <code>raymega report</code> from <code>{html.escape(str(run.path))}</code>.",
    )


def _standing(status: RunStatus) -> str:
    code = "" if status.exit_code is None else f" with exit code {status.exit_code}"
    said = f": {html.escape(status.reason)}" if status.reason else ""
    again = ""
    if status.resume_step is not None:
        command = html.escape(f"raymega train {quote(f'{status.directory}/config.yaml')}")
        again = f"<br>It can go on after step {status.resume_step}: <code>{command}</code>"
    gone = ", its controller is gone and did not say how it ended" if status.standing == "lost" else ""
    return f"<b>{html.escape(status.standing)}{code}</b>{gone}{said}{again}"


def _tiles(told: Told) -> list[Tile]:
    status, progress = told.status, told.history.progress
    tiles = [Tile(figure=f"{status.step:,} of {status.steps:,}", words="steps committed")]
    first = told.steps.first["loss"] if told.steps.first is not None else None
    if first is not None and status.loss is not None:
        tiles.append(Tile(figure=f"{first:.2f} \u2192 {status.loss:.2f}", words="loss, first and last"))
    if status.val_loss is not None:
        tiles.append(Tile(figure=f"{status.val_loss:.2f}", words="validation loss"))
    if status.goodput is not None:
        tiles.append(Tile(figure=f"{status.goodput:.1%}", words="goodput"))
    tiles.append(Tile(figure=f"{status.steps_lost:,}", words="steps lost"))
    if progress is not None:
        tiles += [_counted(progress.recoveries, "recovery")] if progress.recoveries else []
        tiles += [_counted(progress.changes, "change", of=" of plan")] if progress.changes else []
    if status.tokens_per_s is not None:
        tiles.append(Tile(figure=f"{status.tokens_per_s:,.0f}", words="tokens a second, last step"))
    if told.history.up_s > 0:
        tiles.append(Tile(figure=time_words(told.history.up_s), words="time up"))
    return tiles


def _counted(number: int, noun: str, *, of: str = "") -> Tile:
    figure, word = counted(number, noun=noun).split(" ")
    return Tile(figure=figure, words=f"{word}{of}")


def _loss(told: Told) -> Section:
    curves = [Curve(label="training", points=told.steps.losses)]
    if told.steps.validations:
        curves.append(Curve(label="validation", points=told.steps.validations, color="#d1651b", dotted=True))
    marks = marks_of(told.events, history=told.history)
    return Section(
        title="Loss, and what happened", lead=LEADS["loss"], parts=(figure(loss_picture(curves, marks=marks)),)
    )


def _goodput(told: Told) -> Section:
    spent, workers = told.status.worker_s, told.status.workers
    total_s = sum(spent.values())
    if total_s <= 0:
        return Section(title="Goodput", lead="", parts=())
    rows = [
        (
            f"{swatch(CATEGORIES[name])}{name}", f"{seconds:,.1f} s", f"{seconds / total_s:.1%}",
            "yes" if name in GOOD else "no", CATEGORY_WORDS[name],
        )
        for name, seconds in ((name, spent.get(name, 0.0)) for name in CATEGORIES)
        if seconds > 0
    ]  # fmt: skip
    rows.append(("all", f"{total_s:,.1f} s", "100.0%", "", "every second of every worker"))
    head = ("", "worker-seconds", "share", "goodput", "what it is")
    parts = (
        figure(shares_picture(spent, workers=workers, good=GOOD)),
        table(head, rows, kinds=("k", "n", "n", "d", "d")),
    )
    return Section(title="Goodput: where the time went", lead=LEADS["goodput"], parts=parts)


def _mesh(told: Told) -> Section:
    progress = told.history.progress
    if progress is None or progress.plan is None:
        return Section(title="The mesh", lead="", parts=())
    nodes, mesh = {seat.worker: seat.node for seat in progress.seats}, progress.plan.mesh
    again = [launch.at_s for launch in told.history.launches[1:]]
    parts = (
        figure(
            mesh_history_picture(told.history.stays, doings=told.history.doings, begins_s=again),
            caption="over time: a bar for each worker, in the colour of its stage",
        ),
        figure(
            mesh_picture(progress.plan, nodes=nodes, spot=progress.spot), caption=f"as it is now, or was last: {mesh}"
        ),
    )
    return Section(title="The mesh over time", lead=LEADS["mesh"], parts=parts)


def _step(told: Told) -> Section:
    progress, measured = told.history.progress, measured_step(told.run)
    plan = progress.plan if progress is not None else None
    predicted = predicted_step(told.config, plan, cluster=told.cluster)
    ends = [bar.end_s for row in predicted for bar in row.bars]
    span_s = max([*ends, measured.span_s if measured is not None else 0.0], default=0.0)
    parts = []
    if measured is not None:
        parts.append(figure(step_picture(measured.rows, span_s=span_s), caption=f"measured: step {measured.step}"))
    else:
        parts.append("<p class='quiet'>No step was traced; <code>--set 'log.trace_steps=[50]'</code> traces one.</p>")
    if predicted:
        parts.append(figure(step_picture(predicted, span_s=span_s), caption="predicted, for the newest plan"))
    return Section(title="A step on the clock", lead=LEADS["step"], parts=tuple(parts) if predicted or measured else ())


def _pairs(told: Told) -> Section:
    rows = [
        Compared(what=pair.kind, of=pair.of, predicted_s=pair.predicted_s, measured_s=pair.measured_s)
        for pair in told.pairs
    ]
    parts = (figure(pairs_picture(rows)),) if rows else ()
    on = f" Steps are predicted on {html.escape(told.cluster or 'CPU cores as assumed')}."
    return Section(title="Predicted beside measured", lead=LEADS["pairs"] + on, parts=parts)


def _decisions(told: Told) -> Section:
    entries = entries_of(told.events, history=told.history)
    notable = [entry for entry in entries if entry.kind and entry.kind != "checkpoint"]
    shown = notable[-MOST_ENTRIES:]
    parts = [_entries(shown)] if shown else []
    if entries:
        is_whole = len(entries) <= MOST_ENTRIES
        words = (
            f"all events ({len(entries)})" if is_whole else f"the newest {MOST_ENTRIES} events (of {len(entries):,})"
        )
        parts.append(folded(words, _entries(entries[-MOST_ENTRIES:])))
    return Section(title="Decisions, and why", lead=LEADS["decisions"], parts=tuple(parts))


def _entries(entries: list[Entry] | tuple[Entry, ...]) -> str:
    rows = (
        (
            time_words(round(entry.up_s, 1)), f"{entry.step:,}",
            f"{swatch(EVENTS[entry.kind]) if entry.kind else ''}{html.escape(entry.what)}",
            html.escape(entry.reason), html.escape(entry.orders),
        )
        for entry in entries
    )  # fmt: skip
    head = ("time up", "after step", "what happened", "what was decided, and why", "orders")
    return table(head, rows, kinds=("n", "n", "k", "", "d"))
