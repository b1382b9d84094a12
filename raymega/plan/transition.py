"""From one plan to another on a live run: who still holds the state, and who stops having a part.

    old   w0 w1 | w2 w3      senders   w0 w1 w2      (w3 is gone)
    new   w0 w1 w2 w4        leavers   none          w4 holds nothing yet and is sent its boxes
    new   w0 w1              leavers   w2            it sends, and has no part afterwards

A step stays whole: a transition happens between two steps, and the old plan counts until the new one is certified.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from raymega.plan.plan import Plan, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Where the state of a step comes from.

    Args:
        old: the plan by which the state is held.
        senders: living workers of `old` whose state of the step is whole, in the order of the plan.
        node_of: where each sender and each worker of the next plan is.
    """

    old: Plan
    senders: tuple[WorkerId, ...]
    node_of: Mapping[WorkerId, str]

    def leavers(self, new: Plan) -> tuple[WorkerId, ...]:
        """Senders that have no part in `new`."""
        return tuple(worker for worker in self.senders if worker not in new.living)

    def members(self, new: Plan) -> tuple[WorkerId, ...]:
        """Everyone who has a part in the transition: those of `new`, then the leavers."""
        return (*new.living, *self.leavers(new))
