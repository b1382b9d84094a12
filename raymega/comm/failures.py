"""How a group says that it failed: the sentences, and the facts that travel with them.

GroupBroken         a peer's connection broke, or somebody aborted: leave the generation
CollectiveTimeout   nobody broke anything and yet somebody did not come: names who
"""

from collections.abc import Iterable

from raymega.errors import CollectiveTimeout, GroupBroken
from raymega.plan.plan import WorkerId


def group_broken(key: str, *, reason: str) -> GroupBroken:
    """The error for a group that cannot be used any more."""
    return GroupBroken(
        f"group {key} is broken: {reason}. Nothing of it works any more; leave the generation and wait for the next.",
        group=key,
        reason=reason,
    )


def timed_out(key: str, *, op: str, timeout_s: float, missing: Iterable[WorkerId]) -> CollectiveTimeout:
    """The error for a wait that reached its limit; `missing` is empty where nobody can tell."""
    names = tuple(missing)
    who = f"{', '.join(names)} never came" if names else "who is missing is not known"
    return CollectiveTimeout(
        f"{op} of {key} waited {timeout_s:.1f} s; {who}. "
        "The limit only backs up the detection of deaths: see whether those workers are stopped or cut off.",
        group=key,
        op=op,
        missing=names,
    )
