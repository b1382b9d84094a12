"""Every error raymega raises on purpose, by whose move it is.

    RaymegaError                 exit code
      ConfigError                2    the user can fix the config or the command
        PlanError                4    the cluster cannot satisfy the plan
      DataError                  3    the data cannot be trained on
      ClusterError               4    the world changed, or is too small
        WorkerLostError          4    a worker died; carries who and where it was
        CollectiveTimeout        4    a wait ended at its limit; names the ranks that never came
        GroupBroken              4    a peer's connection broke or the group was aborted
        StaleMessage             4    something of an older generation arrived
        Superseded               4    a newer controller has taken the run over
        RayGone                  4    the Ray in which a run lives, or has lived, is not reached
      StateError                 5    a checkpoint or the live state is missing, torn or does not fit
        StateLost                5    no living worker holds some box; it comes back from a checkpoint only
      NonFiniteError             6    the loss or a gradient is not finite and the run cannot go on
      RaymegaBug                 1    we are wrong

A message says what is wrong with the values, the rule, and the way out. Facts travel as fields; every error
survives pickling, since it crosses actors.
"""

from typing import Any, ClassVar


class RaymegaError(Exception):
    """The root. `facts` holds what a program may want to read, by name."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **facts: Any) -> None:  # Any: facts are whatever the message quotes
        super().__init__(message)
        self.message = message
        self.facts = facts

    def __reduce__(self) -> tuple[Any, ...]:
        return (_rebuild, (type(self), self.message, self.facts))


def _rebuild(kind: type[RaymegaError], message: str, facts: dict[str, Any]) -> RaymegaError:
    return kind(message, **facts)


class ConfigError(RaymegaError):
    """The user can fix it: the config, a flag, a name."""

    exit_code = 2


class PlanError(ConfigError):
    """The cluster cannot satisfy the plan."""

    exit_code = 4


class DataError(RaymegaError):
    """The data cannot be trained on: missing, truncated, ids out of range."""

    exit_code = 3


class ClusterError(RaymegaError):
    """The world changed or is too small."""

    exit_code = 4


class WorkerLostError(ClusterError):
    """A worker died; facts: worker, rank, node, step, phase as far as known."""


class CollectiveTimeout(ClusterError):
    """A wait ended at its limit; facts: group, missing."""


class GroupBroken(ClusterError):
    """A peer's connection broke, or the group was aborted; facts: group."""


class StaleMessage(ClusterError):
    """A message of another generation, step or micro-batch arrived; facts: expected, got."""


class Superseded(ClusterError):
    """A newer controller has taken the run over; this one gives no orders any more. Facts: epoch."""


class RayGone(ClusterError):
    """The Ray in which a run lives, or has lived, is not reached from here."""


class StateError(RaymegaError):
    """A checkpoint or the live state is missing, torn or does not fit."""

    exit_code = 5


class StateLost(StateError):
    """No living worker holds some box of the state; facts: lost, as (name, box)."""


class NonFiniteError(RaymegaError):
    """The loss or a gradient is not finite and the run cannot go on."""

    exit_code = 6


class RaymegaBug(RaymegaError):
    """We are wrong: an invariant that no input may break was broken."""
