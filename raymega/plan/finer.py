"""The same plan with smaller micro-batches: more of them, spread anew over the teams that live.

    micro-batches of 4    0 1 2 3 | 4 5 6 7          replica 0, 1
    of 2                  0 1 | 2 3 | 4 5 | 6 7      replica 0, 1, 0, 1

Boxes and the order of samples stay. Less is kept of each pass, and no more passes are alive at once.
"""

from dataclasses import replace

from raymega.plan.plan import Plan
from raymega.plan.uneven import without_teams


def finer(plan: Plan, *, microbatch_size: int) -> Plan:
    """`plan` in micro-batches of so many samples, a divisor of what they have."""
    parts = plan.microbatch_size // microbatch_size
    assert parts * microbatch_size == plan.microbatch_size, "a micro-batch is cut into whole parts"
    spread = without_teams(replace(plan, routes=plan.routes * parts, microbatch_size=microbatch_size), ())
    assert spread is not None, "every stage of a plan has a living team"
    return spread


def next_finer(plan: Plan) -> int | None:
    """The most samples that a micro-batch can have below what it has; None: it cannot be cut.

    A table of actions is of so many micro-batches and no others.
    """
    if plan.table:
        return None
    return max((size for size in range(1, plan.microbatch_size) if plan.microbatch_size % size == 0), default=None)
