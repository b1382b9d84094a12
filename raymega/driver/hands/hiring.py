"""With what every worker of a run is started, and what each knows from birth."""

from raymega.config.schema import Config
from raymega.control.states import Seat
from raymega.driver.cluster.node_watch import NodeWatch
from raymega.driver.hands.chaos import ChaosHands
from raymega.driver.hands.place import Place
from raymega.driver.hands.worker_group import Hiring
from raymega.worker.interface import WorkerSettings


def hiring_of(config: Config, *, place: Place, epoch: int, watch: NodeWatch, chaos: ChaosHands) -> Hiring:
    """What the config and the place of a run make of it.

    Args:
        epoch: of the controller that hires.
    """

    def settings_of(seat: Seat) -> WorkerSettings:
        return WorkerSettings(
            worker=seat.worker,
            config=config,
            run_dir=place.run_dir,
            checkpoint_dir=place.checkpoint_dir,
            device="cuda:0" if place.device == "cuda" else "cpu",
            bind_address=watch.addresses[seat.node],
            log_file=f"{place.run_dir}/logs/worker-{seat.worker}.log",
            node=seat.node,
            node_number=chaos.number_of(seat.node),
            chaos=chaos.orders,
        )

    return Hiring(
        run=place.run,
        epoch=epoch,
        factory=place.factory,
        cpus=config.run.cpus_per_worker,
        device=place.device,
        lease_s=config.elastic.lease_s,
        orphan_lease_s=config.elastic.orphan_lease_s,
        start_limit_s=place.start_limit_s,
        settings_of=settings_of,
    )
