"""How a notebook reaches the controller of a run, and what it may ask it to carry out.

reached(run)          waits for a run that is only starting; one that is over, or did not begin, says how it ended
order_to_kill(..)     kill stage=1 replica=0 tp=0 step=41 action=F3      in work that the worker has, soon
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from raymega.control.commands import Answer
from raymega.driver.arguments import whole
from raymega.driver.finding import end_of, reach, refuse_if_over
from raymega.driver.launch import controller_name
from raymega.driver.live_run import LiveRun
from raymega.driver.records.console_log import last_words
from raymega.driver.records.line_shapes import Line
from raymega.driver.records.lock import read_owner
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ClusterError, ConfigError
from raymega.mesh import Mesh
from raymega.plan.plan import Plan

LOOK_S = 0.1
START_LIMIT_S = 120.0
KILL_AHEAD_S = 2.0  # twice what an order takes to reach a worker, where nothing else is going on


@contextmanager
def reached(name: str, directory: RunDirectory, *, is_over: Callable[[], bool]) -> Iterator[LiveRun]:
    """The run's controller, once it is there. Raises: ConfigError for a run that is over."""
    until = time.monotonic() + START_LIMIT_S
    with going_on(name):
        while not _is_led(name, directory):
            if is_over():
                if directory.is_begun():
                    refuse_if_over(name, directory)
                raise ClusterError(f"run {name} did not begin: {last_words(directory)}")
            if time.monotonic() > until:
                raise ClusterError(f"run {name} has no controller after {START_LIMIT_S:.0f} s.")
            time.sleep(LOOK_S)
        with reach(name, directory) as run:
            yield run


@contextmanager
def going_on(name: str) -> Iterator[None]:
    """Say of a run that others lead that an interrupt is none of its business."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"interrupted: run {name} is left as it is; what it was asked before takes effect all the same")
        raise


def drained(live: LiveRun, node: str, *, deadline_s: float) -> Answer:
    """Have the run leave a node, by its id or its beginning, host, or address. Raises: ConfigError."""
    import ray

    from raymega.driver.cluster.drain import node_named

    return live.drain(node_named(node, rows=ray.nodes()), deadline_s=deadline_s, cause="run.drain")[0]


def mesh_asked(**axes: int | None) -> Mesh | None:
    """The mesh that is named; an axis that is not has one rank. None: none is. Raises: ConfigError."""
    if all(size is None for size in axes.values()):
        return None
    return Mesh(**{axis: 1 if size is None else whole(size, name=axis) for axis, size in axes.items()})


def how_it_ended(directory: RunDirectory) -> str:
    """In its own words, or the last that its keeper has printed, which may be of an earlier launch."""
    over = end_of(directory)
    if over is not None:
        return str(over["reason"])
    return f"its controller is gone and did not say how it ended; the last that was printed: {last_words(directory)}"


def order_to_kill(worker: int, *, plan: Plan | None, last: Line | None) -> str:
    """The order by which the worker of this rank ends itself within a step that is near.

    Args:
        last: the newest step, as it stands in the metrics; None: there is none yet.
    Raises: ConfigError if there is no such worker.
    """
    worker = whole(worker, name="worker", least=0)
    if plan is None or worker >= len(plan.workers):
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
    return owner is not None and owner.controller == controller_name(name) and not owner.is_gone(time.time())
