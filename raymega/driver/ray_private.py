"""What raymega needs of Ray and Ray does not promise: all of it is here, and each has a way round.

draining_nodes     Ray tells of a drain notice only through a private call, measured with Ray 2.60 (0.3 ms a poll);
                   with a Ray that lacks it the answer is "none", and a drained node is noticed when it is gone
apply_auth_mode    Ray reads RAY_AUTH_MODE when it is imported; a Ray that cannot read it again must find it set
"""

import importlib
from collections.abc import Callable
from functools import cache

Poll = Callable[[], dict[str, int]]


@cache
def _poll() -> Poll | None:
    state = importlib.import_module("ray._private.state").state
    poll: Poll | None = getattr(state, "get_draining_nodes", None)
    return poll


def can_see_drains() -> bool:
    """Whether this Ray tells of drain notices before a node is gone."""
    return _poll() is not None


def draining_nodes() -> dict[str, float]:
    """Nodes under a drain notice -> the deadline in Unix seconds (0: none was given)."""
    poll = _poll()
    return {node: deadline_ms / 1000 for node, deadline_ms in poll().items()} if poll is not None else {}


def apply_auth_mode() -> None:
    """Let this process's Ray take RAY_AUTH_MODE as it stands in the environment now."""
    importlib.import_module("ray._raylet").Config.initialize("")
