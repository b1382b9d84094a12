"""What a controller is told of the run that it is to lead, and the name that it goes by."""

import time
import uuid
from dataclasses import dataclass, field

from raymega.config.schema import Config
from raymega.control.states import Checkpoint
from raymega.driver.cluster.node_watch import Device
from raymega.driver.hands.publishing import Imprint
from raymega.driver.records.lock import Owner
from raymega.driver.records.progress import Facts
from raymega.driver.records.run_dir import RunDirectory

OWNER_LEASE_S = 5.0
HELD_UP_S = 60.0  # guess: longer than a machine with ten busy processes a core keeps one waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """All a controller needs to know.

    Args:
        config: as resolved.
        facts: what the summary of the run quotes.
        eval_batches: full batches of one evaluation; 0: no evaluation.
        sources: `module:callable` that makes the `Sources` from the config.
        factory: `module:callable` that makes a worker.
        checkpoint: what the run goes on from.
        began_t: when it was asked for: the time that Ray takes to start is the run's too.
        owner_lease_s: silence of the owner after which the run ends; None: it has no owner.
        owner: its process, which has longer to be silent while it is seen to live; None: that is not known.
        id: tells this launch from any other in the same directory.
        heir_of: id of the lock that its launcher holds until the controller takes it; None: it holds none.
    """

    config: Config
    run_dir: RunDirectory
    checkpoint_dir: str
    device: Device
    imprint: Imprint
    facts: Facts
    eval_batches: int = 0
    sources: str = "raymega.driver.hands.sources:data_sources"
    factory: str = "raymega.worker.worker:Worker"
    checkpoint: Checkpoint | None = None
    began_t: float = field(default_factory=time.time)
    owner_lease_s: float | None = OWNER_LEASE_S
    owner: Owner | None = None
    start_limit_s: float = 120.0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    heir_of: str | None = None

    @property
    def name(self) -> str:
        assert self.config.run.name is not None, "a resolved config has a name"
        return self.config.run.name

    def is_left(self, *, silent_s: float) -> bool:
        """Is the owner gone, which has not asked for so long? One that is seen to live may only be held up."""
        if self.owner_lease_s is None:
            return False
        is_seen = self.owner is not None and self.owner.is_seen()
        return silent_s > (max(HELD_UP_S, self.owner_lease_s) if is_seen else self.owner_lease_s)


def controller_name(run: str) -> str:
    """The name of a run's controller, in namespace `raymega`."""
    return f"raymega:{run}"


def launcher_name(run: str) -> str:
    """What whoever launches a run goes by in its LOCK, until there is a controller."""
    return f"client of {run}"


def keeper_name(run: str) -> str:
    """The same of a run in the background, whose config is `RunDirectory.launched` until it has begun."""
    return f"keeper of {run}"
