"""What a worker keeps from generation to generation."""

from dataclasses import dataclass

from raymega.comm.boundary_log import BoundaryLog
from raymega.worker.batches import BatchStore
from raymega.worker.chaos import Chaos
from raymega.worker.held import Held
from raymega.worker.interface import WorkerSettings
from raymega.worker.orders import Orders
from raymega.worker.peer_copies import PeerCopies
from raymega.worker.reports import Reports
from raymega.worker.saving import Saves
from raymega.worker.time_sheet import TimeSheet


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """See above."""

    settings: WorkerSettings
    held: Held
    orders: Orders
    reports: Reports
    batches: BatchStore
    saves: Saves
    copies: PeerCopies
    log: BoundaryLog
    chaos: Chaos
    sheet: TimeSheet
