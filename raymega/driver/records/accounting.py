"""What a run adds up to over all its controllers, from its directory alone (`driver.records.replay`)."""

from collections.abc import Iterator
from dataclasses import replace

from raymega.control.loop import Turn
from raymega.driver.records.journal import JournalHead
from raymega.driver.records.progress import Progress
from raymega.driver.records.replay import heads, told
from raymega.driver.records.run_dir import RunDirectory


def progress_of(run: RunDirectory) -> Progress | None:
    """Where a run stands; the time between two launches of it is nobody's. None: it has no journal yet."""
    progress = None
    for _, _, progress in progress_along(run):  # noqa: B007  the last one is what is asked for
        pass
    return progress


def progress_along(run: RunDirectory) -> Iterator[tuple[JournalHead, Turn | None, Progress]]:
    """How each controller began (no turn), then its turns, with where the run stood after each."""
    config, progress = run.read_config(), None
    for head, turn in told(heads(run.journal), config=config):
        if progress is None:
            progress = Progress.begin(head.t)
        elif turn is None and head.takes_over is None:
            progress = replace(progress, goodput=replace(progress.goodput, t=head.t))
        if turn is not None:
            progress = progress.after(turn)
        yield head, turn, progress
