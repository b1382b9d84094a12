"""How a notebook reaches the controller of a run, and what it may ask it to carry out.

reached(run)          waits for a run that is only starting; one that is over, or did not begin, says how it ended
order_to_kill(..)     kill stage=1 replica=0 tp=0 step=41 action=F3      in work that the worker has, soon
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raymega.control.commands import Answer
from raymega.driver.background import last_words
from raymega.driver.finding import end_of, refuse_if_over
from raymega.driver.json_lines import Line
from raymega.driver.live_run import LiveRun
from raymega.driver.lock import read_owner
from raymega.driver.ray_session import ray_of
from raymega.driver.run_dir import RunDirectory
from raymega.errors import ClusterError, ConfigError
from raymega.plan.plan import Plan

LOOK_S = 0.1
START_LIMIT_S = 120.0
KILL_AHEAD_S = 2.0  # twice what an order takes to reach a worker, where nothing else is going on


@contextmanager
def reached(name: str, directory: RunDirectory, *, is_over: Callable[[], bool]) -> Iterator[LiveRun]:
    """The run's controller, once it is there. Raises: ConfigError for a run that is over."""
    until = time.monotonic() + START_LIMIT_S
    while not _is_led(name, directory):
        if is_over():
            if directory.is_begun():
                refuse_if_over(name, directory)
            raise ClusterError(f"run {name} did not begin: {last_words(directory)}")
        if time.monotonic() > until:
            raise ClusterError(f"run {name} has no controller after {START_LIMIT_S:.0f} s.")
        time.sleep(LOOK_S)
    with ray_of(directory.lock):
        yield LiveRun.find(name)


def drained(live: LiveRun, node: str, *, deadline_s: float) -> Answer:
    """Have the run leave a node, by its id or its beginning, host, or address. Raises: ConfigError."""
    import ray

    from raymega.driver.drain import node_named

    return live.drain(node_named(node, rows=ray.nodes()), deadline_s=deadline_s, cause="run.drain")[0]


def how_it_ended(directory: RunDirectory) -> str:
    """In its own words, or the last that its keeper has printed."""
    over = end_of(directory)
    return str(over["reason"]) if over is not None else last_words(directory)


def order_to_kill(worker: int, *, plan: Plan | None, last: Line | None) -> str:
    """The order by which the worker of this rank ends itself within a step that is near.

    Args:
        last: the newest step, as it stands in the metrics; None: there is none yet.
    Raises: ConfigError if there is no such worker.
    """
    if plan is None or not 0 <= worker < len(plan.workers):
        raise ConfigError(f"the run has no rank {worker}; there are {0 if plan is None else len(plan.workers)}.")
    if plan.workers[worker] not in plan.living:
        raise ConfigError(f"rank {worker} is lost. Name one of the living.")
    committed, step_s = (0, KILL_AHEAD_S) if last is None else (int(last["step"]), float(last["step_s"]))
    ahead = max(3, math.ceil(KILL_AHEAD_S / max(step_s, 1e-3)))
    at = plan.mesh.coord(worker)
    action = f"F{plan.microbatches_of(replica=at.replica, stage=at.stage)[-1]}"  # every schedule has it
    return f"kill stage={at.stage} replica={at.replica} tp={at.shard} step={committed + ahead} action={action}"


def _is_led(name: str, directory: RunDirectory) -> bool:
    owner = read_owner(directory.lock)
    return owner is not None and owner.controller == f"raymega:{name}" and not owner.is_gone(time.time())
