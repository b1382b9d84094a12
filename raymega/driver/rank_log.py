"""Where the worker of a rank prints: ranks are of the plan in force, workers keep their names from plan to plan."""

from pathlib import Path

from raymega.driver.accounting import progress_of
from raymega.driver.run_dir import RunDirectory
from raymega.errors import ConfigError


def log_of_rank(run: RunDirectory, *, rank: int) -> Path:
    """The log of `rank` in the newest plan of the run. Raises: ConfigError naming the ranks that there are."""
    progress = progress_of(run)
    workers = () if progress is None or progress.plan is None else progress.plan.workers
    if not 0 <= rank < len(workers):
        there = f"there are ranks 0 to {len(workers) - 1}" if workers else "it has no plan yet"
        raise ConfigError(f"run {run.path.name} has no rank {rank}: {there}.")
    return run.logs / f"worker-{workers[rank]}.log"
