"""What a run adds up to over all its controllers, from its directory alone (`driver.replay`)."""

from dataclasses import replace

from raymega.driver.progress import Progress
from raymega.driver.replay import heads, told
from raymega.driver.run_dir import RunDirectory


def progress_of(run: RunDirectory) -> Progress | None:
    """Where a run stands; the time between two launches of it is nobody's. None: it has no journal yet."""
    config, progress = run.read_config(), None
    for head, turn in told(heads(run.journal), config=config):
        if progress is None:
            progress = Progress.begin(head.t)
        elif turn is None and head.takes_over is None:
            progress = replace(progress, goodput=replace(progress.goodput, t=head.t))
        if turn is not None:
            progress = progress.after(turn)
    return progress
