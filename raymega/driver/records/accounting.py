"""What a run adds up to over all its controllers, from its directory alone (`driver.records.replay`).

launch 1    000001.jsonl  000002.jsonl      told on from the newest snapshot of its controllers
launch 2    000003.jsonl                    and so is this one; then both are put behind each other
"""

from collections.abc import Iterator

from raymega.config.schema import Config
from raymega.driver.records.history import History
from raymega.driver.records.progress import Progress
from raymega.driver.records.replay import Chain, heads, newest_start, told
from raymega.driver.records.run_dir import RunDirectory


def progress_of(run: RunDirectory) -> Progress | None:
    """Where a run stands; the time between two launches of it is nobody's. None: it has no journal yet."""
    return history_of(run).progress


def history_of(run: RunDirectory) -> History:
    """Told from the journals of a run. Raises: StateError for one that is broken."""
    config, whole = run.read_config(), History()
    for launch in _launches(heads(run.journal)):
        whole = whole.then(_history_of(launch, config=config))
    return whole.closed()


def _history_of(launch: Chain, *, config: Config) -> History:
    """One launch, all its controllers."""
    known, start = newest_start(launch)
    if start is not None:
        history = start.history
    else:
        head = known[0][1]
        history = History.begin(head.t, step=head.checkpoint.step if head.checkpoint is not None else 0)
    for _, turn in told(known, config=config, start=start):
        if turn is not None:
            history = history.after(turn)
    return history


def _launches(known: Chain) -> Iterator[Chain]:
    """The journals of each launch: of its first controller, and of those that took over."""
    launch: Chain = ()
    for file, head in known:
        if head.takes_over is None and launch:
            yield launch
            launch = ()
        launch = (*launch, (file, head))
    if launch:
        yield launch
