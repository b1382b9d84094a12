"""Where the worker of a rank prints: ranks are of the plan in force, workers keep their names from plan to plan."""

from pathlib import Path

from raymega.driver.arguments import whole
from raymega.driver.records.accounting import progress_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError, StateError


def log_of_rank(run: RunDirectory, *, rank: int) -> Path:
    """The log of `rank` in the newest plan of the run.

    Raises: ConfigError naming the ranks that there are; StateError where the worker of one has no log in the directory.
    """
    rank, progress = whole(rank, name="rank", least=0), progress_of(run)
    workers = () if progress is None or progress.plan is None else progress.plan.workers
    if rank >= len(workers):
        there = f"there are ranks 0 to {len(workers) - 1}" if workers else "it has no plan yet"
        raise ConfigError(f"run {run.path.name} has no rank {rank}: {there}.")
    log = run.logs / f"worker-{workers[rank]}.log"
    if not log.is_file():
        raise StateError(
            f"{log} is not there: {workers[rank]}, the worker of rank {rank}, has not begun yet, or its node keeps "
            "another directory under this path. Look there, or have run.dir on a storage that all nodes share."
        )
    return log
