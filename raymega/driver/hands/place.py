"""Where a run is, as its hands know it."""

from dataclasses import dataclass

from raymega.driver.cluster.node_watch import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a run's files are and what its workers are made of.

    Args:
        factory: `module:callable` that makes a worker.
        eval_batches: full batches of one evaluation; 0: no evaluation.
        began_t: when the run was asked for.
        start_limit_s: how long a worker may take to come to life.
    """

    run: str
    run_dir: str
    checkpoint_dir: str
    device: Device
    factory: str
    eval_batches: int
    began_t: float
    start_limit_s: float
