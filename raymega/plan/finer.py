"""The same plan with smaller micro-batches: each is cut into equal parts, which go its way.

    micro-batches of 4    0 1 2 3 | 4 5 6 7          route of 0: replica 0, of 1: replica 1
    of 2                  0 1 | 2 3 | 4 5 | 6 7      routes: replica 0, 0, 1, 1

Boxes, quotas and the order of samples stay. Less is kept of each pass, and no more passes are alive at once.
"""

from dataclasses import replace

from raymega.plan.plan import Plan


def finer(plan: Plan, *, microbatch_size: int) -> Plan:
    """`plan` in micro-batches of so many samples, a divisor of what they have."""
    parts = plan.microbatch_size // microbatch_size
    assert parts * microbatch_size == plan.microbatch_size, "a micro-batch is cut into whole parts"
    routes = tuple(route for route in plan.routes for _ in range(parts))
    return replace(plan, routes=routes, microbatch_size=microbatch_size)


def next_finer(plan: Plan) -> int | None:
    """The most samples that a micro-batch can have below what it has; None: it cannot be cut.

    A table of actions is of so many micro-batches and no others.
    """
    if plan.table:
        return None
    return max((size for size in range(1, plan.microbatch_size) if plan.microbatch_size % size == 0), default=None)
