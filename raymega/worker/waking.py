"""Which groups of a worker break when its generation ends from outside: all but the team's own, while its shards live.

    abort     pairs, rings, tied ends   cut at once: whoever waits in them wakes
              the team                  cut with a lost member only, else left: a backward under way in all its shards
                                        ends in all of them, so that their gradients belong together
    leave     all of them               a shard that has no input for its next action leaves; the others wake out of
                                        that action, in which nothing has been added yet

An action has a collective that all shards enter. So when the first of them leaves, the others have all that they need
to finish the same actions as it, and cannot finish one more. A shard that neither leaves nor is known to be lost (it
was stopped, say) holds the others up for a lease, no longer.
"""

import threading
from collections.abc import Callable, Collection

from raymega.comm.group import Fabric, GroupSpec
from raymega.plan.plan import WorkerId


class Waking:
    """The groups of one worker's newest generation; `wake` and `end` may be called from any thread."""

    def __init__(self, *, lease_s: float) -> None:
        self._lease_s = lease_s
        self._lock = threading.Lock()
        self._fabric: Fabric | None = None
        self._team: GroupSpec | None = None
        self._later: threading.Timer | None = None

    def begin(self, fabric: Fabric) -> None:
        """From here on `fabric` is the one to break."""
        with self._lock:
            self._fabric, self._team = fabric, None

    def spare(self, team: GroupSpec) -> None:
        """The team is built: it is left alone while all its members live."""
        with self._lock:
            self._team = team

    def wake(self, *, lost: Collection[WorkerId], is_current: Callable[[int], bool]) -> None:
        """Break what has to break, unless the generation is still current; `lost`: those known to be."""
        with self._lock:
            fabric, team = self._fabric, self._team
            if fabric is None or is_current(fabric.generation):
                return
            spared = team is not None and len(team.members) > 1 and not set(team.members) & set(lost)
            if spared and self._later is None:
                self._later = threading.Timer(self._lease_s, fabric.abort)
                self._later.daemon = True
                self._later.start()
        fabric.abort(spare=(team.key,) if team is not None and spared else ())

    def end(self) -> None:
        """Leave: break all groups, so that a peer that still waits for this worker wakes at once."""
        with self._lock:
            fabric, later, self._later = self._fabric, self._later, None
        if later is not None:
            later.cancel()
        if fabric is not None:
            fabric.abort()
            fabric.close()
