"""What the verbs show that only look on: they read the run's directory, and leave the run as it is when they end.

step 120  loss 4.8123  1,772 tokens/s  dp=2 tp=1 pp=2
  w2 is lost: its process died; ..
"""

import time
from collections.abc import Callable, Iterator

from raymega.driver.records.following import Added
from raymega.driver.records.line_shapes import EVENT_LINE, STEP_LINE
from raymega.driver.records.lock import read_owner
from raymega.driver.records.rank_log import log_of_rank
from raymega.driver.records.reading import run_directory
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.run_status import status_of

LOOK_S = 0.5


def log_text(word: str, *, rank: int, tell: Callable[[str], None]) -> str:
    """What the worker of a rank has printed; `tell` is told where that is nothing.

    Raises: ConfigError for a rank that there is not.
    """
    file = log_of_rank(run_directory(word), rank=rank)
    text = file.read_text(encoding="utf-8", errors="replace").rstrip()
    if not text:
        tell(f"{file} is empty: the worker of rank {rank} has printed nothing so far")
    return text


def followed(word: str) -> Iterator[str]:
    """Where a run stands, then each step and each event as it comes, until the run is over."""
    run = run_directory(word)
    steps, events = Added(run.metrics, shape=STEP_LINE, by="step"), Added(run.events, shape=EVENT_LINE, by="seq")
    steps.skip()
    events.skip()
    yield str(status_of(run))
    is_alive = True
    while is_alive:
        is_alive = _is_alive(run)
        for event in events.lines():
            yield f"  {event['reason']}"
        for line in steps.lines():
            loss = "not finite" if line["loss"] is None else f"{line['loss']:.4f}"
            yield f"step {line['step']}  loss {loss}  {line['tokens_per_s']:,.0f} tokens/s  {line['mesh']}"
        if is_alive:
            time.sleep(LOOK_S)


def standings(word: str, *, every_s: float) -> Iterator[str]:
    """Where a run stands, again and again, until it is over."""
    run = run_directory(word)
    while _is_alive(run):
        yield str(status_of(run))
        time.sleep(every_s)
    yield str(status_of(run))


def _is_alive(run: RunDirectory) -> bool:
    owner = read_owner(run.lock)
    return owner is not None and not owner.is_over(time.time())
