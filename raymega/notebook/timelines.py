"""`run.timeline()`: what each worker of a run did, over the time that the run was up and within one step of it.

    the run is |start|======= training =======|r|===== training ===|      from its journals
    w0         |     |        stage 0                              |
    w1         |     |        stage 1         x

    w0  |F0|F1|F2|F3|    |B0| ..  |reduce|apply|                     from a trace of a step, and as predicted

In a terminal, a line for each place that a worker had.
"""

import html
from collections.abc import Iterator

from raymega.driver.records.accounting import history_of
from raymega.driver.records.history import History
from raymega.driver.records.run_dir import RunDirectory
from raymega.notebook.showing import Drawn, captioned, page
from raymega.pictures.meshes import mesh_history_picture
from raymega.pictures.scale import time_words
from raymega.pictures.steps import step_picture
from raymega.report.on_the_clock import measured_step, predicted_step
from raymega.report.words import LEADS

NOT_YET = "nobody has had a place yet"


def timeline_of(run: RunDirectory, *, step: int | None = None) -> Drawn:
    """What was told of a run so far.

    Args:
        step: which trace; None: the newest, if there is one.
    Raises: StateError for a directory that is no run's; ConfigError for a step that was not traced.
    """
    history, config = history_of(run), run.read_config()
    plan = history.progress.plan if history.progress is not None else None
    if not history.stays:
        return Drawn(text=f"{run.path.name}: {NOT_YET}", html=page(f"<b>{html.escape(run.path.name)}</b>: {NOT_YET}"))
    begins_s = [launch.at_s for launch in history.launches[1:]]
    picture = mesh_history_picture(history.stays, doings=history.doings, begins_s=begins_s)
    parts = [captioned(picture, LEADS["mesh"])]
    measured, predicted = measured_step(run, step=step), predicted_step(config, plan, cluster=None)
    spans = [bar.end_s for row in (*predicted, *(measured.rows if measured is not None else ())) for bar in row.bars]
    if measured is not None:
        drawn = step_picture(measured.rows, span_s=max(spans))
        parts.append(captioned(drawn, f"<b>Step {measured.step}, as it was measured.</b> {LEADS['step']}"))
    if predicted:
        drawn, how = step_picture(predicted, span_s=max(spans)), "" if measured is not None else f" {LEADS['step']}"
        parts.append(captioned(drawn, f"<b>A step of the newest plan, as it is predicted.</b>{how}"))
    return Drawn(text="\n".join(_lines(run.path.name, history)), html=page(_head(run.path.name, history), *parts))


def _head(name: str, history: History) -> str:
    return f"<b>{html.escape(name)}</b> \u00b7 what each worker did in {time_words(round(history.up_s, 1))}"


def _lines(name: str, history: History) -> Iterator[str]:
    yield f"{name}  up for {time_words(round(history.up_s, 1))}"
    for doing in history.doings:
        yield _line("the run", "is", doing.what, doing.begin_s, doing.end_s)
    for stay in sorted(history.stays, key=lambda stay: (stay.begin_s, len(stay.worker), stay.worker)):
        lost = ", lost" if stay.lost else ""
        yield _line(stay.worker, stay.node[:8], f"{stay.words}{lost}", stay.begin_s, stay.end_s)


def _line(who: str, where: str, what: str, begin_s: float, end_s: float) -> str:
    times = (time_words(round(at_s, 1)) for at_s in (begin_s, end_s))
    return f"  {who:<8} {where:<8} {' - '.join(times):<20} {what}"
