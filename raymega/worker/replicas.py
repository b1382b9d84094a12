"""Do those who hold the same boxes hold the same bits? Every so many steps they compare fingerprints.

    w0   layers.0.wq param [0:24]  7f21..       team   what shards hold in common: norms, replicated heads
    w2   layers.0.wq param [0:24]  7f21..       ring   what replicas hold in common: all, or pieces and their mirrors
         the same: on it goes                   tied   the matrix of both ends

All compute the same from the same bits, so what differs is a fault of memory, or of this program. Of two, none can be
trusted, so the run ends before anything of it is saved.
"""

import json
from collections.abc import Mapping

from raymega.comm.group import Group
from raymega.errors import StateError
from raymega.worker.copy_slots import fingerprints
from raymega.worker.state import TrainState
from raymega.worker.world import World

Key = tuple[str, str, tuple[int, ...], tuple[int, ...]]
"""Name, kind, offsets and sizes."""


def check_replicas(state: TrainState, *, world: World) -> None:
    """Compare with all who hold the same; they all call it after the same step.

    Raises: StateError naming what differs and with whom; GroupBroken or CollectiveTimeout if someone is lost.
    """
    prints = fingerprints(tuple(state.items()))
    mine = {(one.name, one.kind, one.box.offsets, one.box.sizes): one.value for one in prints}
    for group in (world.team, world.ring, world.tied):
        if group.size > 1:
            _compare(mine, group=group, me=world.me, step=state.committed)


def _compare(mine: Mapping[Key, int], *, group: Group, me: str, step: int) -> None:
    payload = json.dumps([[*key, value] for key, value in mine.items()]).encode()
    for member, said in zip(group.spec.members, group.all_gather_bytes(payload), strict=True):
        theirs = {(name, kind, tuple(at), tuple(size)): value for name, kind, at, size, value in json.loads(said)}
        wrong = sorted(key for key in mine.keys() & theirs.keys() if mine[key] != theirs[key])
        if wrong:
            name, kind, *_ = wrong[0]
            more = f" and of {len(wrong) - 1} more boxes" if len(wrong) > 1 else ""
            raise StateError(
                f"{me} and {member} hold other bits of {name} ({kind}){more} after step {step}, and should hold the "
                "same. Neither can be trusted: resume, from the newest checkpoint. If it comes again, suspect the "
                "memory of their nodes.",
                workers=(me, member),
                step=step,
                boxes=tuple(f"{name} {kind}" for name, kind, *_ in wrong),
            )
