"""Which wires a worker's groups run over: gloo between CPUs, NCCL between GPUs."""

from typing import Protocol

from raymega.comm.fabrics import fabric_for
from raymega.comm.group import Fabric
from raymega.worker.interface import Assignment, WorkerSettings


class MakeFabric(Protocol):
    """Connects a worker to the others of a generation."""

    def __call__(self, *, assignment: Assignment, settings: WorkerSettings) -> Fabric: ...


def connect(*, assignment: Assignment, settings: WorkerSettings) -> Fabric:
    """Connect to the generation's rendezvous store.

    Raises: ClusterError if the store does not answer.
    """
    return fabric_for(
        settings.device,
        store=assignment.store,
        me=settings.worker,
        generation=assignment.generation,
        timeout_s=settings.config.elastic.group_timeout_s,
        bind_address=settings.bind_address,
    )
