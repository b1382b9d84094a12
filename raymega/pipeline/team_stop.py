"""Where do the shards of a living team stop when the step breaks? At one action: their gradients belong together.

    started         shard 0  0F0 0F1 0B0 0F2 0B1 |         is in 0B1: its collectives wait for the others
                    shard 1  0F0 0F1 0B0 |                 behind, but has the inputs of 0F2 and 0B1
    all stop after  0F0 0F1 0B0 0F2 0B1

The team's own group is never cut while all its members live, so whoever is behind can catch up. If an input will never
come, those who are inside its action leave it undone: a backward adds to the accumulators only after its last
collective.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One shard: how many actions of the program it has started, and for how many it holds all inputs."""

    started: int
    supplied: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TeamStop:
    """Every shard runs until it has finished `finished` actions.

    `abandons`: some shard is inside the next action and leaves it; the team's group has an operation in flight then and
    is built anew.
    """

    finished: int
    abandons: bool


def team_stop(shards: Sequence[Progress]) -> TeamStop:
    """The highest action started whose inputs all shards have."""
    furthest = max(shard.started for shard in shards)
    finished = min(furthest, *(shard.supplied for shard in shards))
    return TeamStop(finished=finished, abandons=furthest > finished)
