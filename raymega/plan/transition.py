"""From one plan to another on a live run: who still holds the state, and who stops having a part.

    old   w0 w1 | w2 w3      senders   w0 w1 w2      (w3 is gone)
    new   w0 w1 w2 w4        leavers   none          w4 holds nothing yet and is sent its boxes
    new   w0 w1              leavers   w2            it sends, and has no part afterwards
    copies w3 <- w0                                  nobody else holds what w3 held: w0 has a copy of it

A step stays whole: a transition happens between two steps, and the old plan counts until the new one is certified.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from raymega.plan.plan import Plan, WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Where the state of a step comes from.

    Args:
        old: the plan by which the state is held.
        senders: living workers of `old` whose state of the step is whole, in the order of the plan.
        node_of: where each sender and each worker of the next plan is.
        copies: worker of `old` that is lost -> the sender that keeps a copy of what it held.
        version: (step, generation that decided it) of the state that everybody sends, from its live state or from its
            copies; None: the live state of the step of the transition.
    """

    old: Plan
    senders: tuple[WorkerId, ...]
    node_of: Mapping[WorkerId, str]
    copies: Mapping[WorkerId, WorkerId] = field(default_factory=dict)
    version: tuple[int, int] | None = None

    def leavers(self, new: Plan) -> tuple[WorkerId, ...]:
        """Senders that have no part in `new`."""
        stay = set(new.living)
        return tuple(worker for worker in self.senders if worker not in stay)

    def members(self, new: Plan) -> tuple[WorkerId, ...]:
        """Everyone who has a part in the transition: those of `new`, then the leavers."""
        return (*new.living, *self.leavers(new))

    def owners(self, sender: WorkerId) -> tuple[WorkerId, ...]:
        """Whose boxes `sender` sends: its own, then those that it keeps copies of."""
        return (sender, *(owner for owner, holder in self.copies.items() if holder == sender))
