"""Who holds which piece of a stage's optimizer state: masters and moments, cut over the replicas.

    dp=3        zero1         mirrored, to the next        replica 1 is gone, mirrored
    replica 0   piece 0       piece 0, and 2               piece 0, and 2
    replica 1   piece 1       piece 1, and 0               -
    replica 2   piece 2       piece 2, and 1               piece 2, and 1: for piece 1 it speaks now

none is one piece, which all replicas hold. Of the living holders of a piece the first speaks for it: it adds up the
gradients, its norm counts, and the others take the weights from it. Pieces are cut over the teams that lived when the
state was laid out; a plan that lost some since keeps the cut.
Source: Rajbhandari et al. 2020 (arXiv 1910.02054), section 5.1.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from raymega.mesh import Coord
from raymega.plan.plan import Place, Plan, WorkerId


def num_pieces(plan: Plan, *, stage: int) -> int:
    """Pieces into which the optimizer state of a stage is cut."""
    return len(_owners(plan, stage)) if plan.shard_optimizer != "none" else 1


def holders(plan: Plan, *, stage: int, piece: int) -> tuple[int, ...]:
    """The living replicas that hold a piece; the first of them speaks for it."""
    owners = _owners(plan, stage)
    match plan.shard_optimizer:
        case "none":
            held = owners
        case "zero1":
            held = owners[piece : piece + 1]
        case "mirrored":
            mirror = (piece + _shift(plan, count=len(owners))) % len(owners)
            held = tuple(dict.fromkeys((owners[piece], owners[mirror])))
    return tuple(replica for replica in held if plan.is_living(replica, stage))


def pieces_of(plan: Plan, *, replica: int, stage: int) -> tuple[int, ...]:
    """The pieces that a replica holds, ascending."""
    if not plan.is_living(replica, stage) or plan.shard_optimizer == "none":
        return (0,) if plan.is_living(replica, stage) else ()
    owners = _owners(plan, stage)
    own = owners.index(replica)
    if plan.shard_optimizer == "zero1":
        return (own,)
    return tuple(sorted({own, (own - _shift(plan, count=len(owners))) % len(owners)}))


def spoken_by(plan: Plan, *, replica: int, stage: int) -> tuple[int, ...]:
    """The pieces for which a replica speaks, ascending."""
    held = pieces_of(plan, replica=replica, stage=stage)
    return tuple(piece for piece in held if holders(plan, stage=stage, piece=piece)[0] == replica)


def mirrored_apart(plan: Plan, *, node_of: Mapping[WorkerId, str]) -> Plan:
    """The plan with the nearest second holders that share least nodes with the first ones."""
    if plan.shard_optimizer != "mirrored" or plan.mesh.dp < 3:
        return plan

    def together(shift: int) -> int:
        mesh, shifted = plan.mesh, replace(plan, mirror_shift=shift)
        at = [(stage, shard) for stage in range(mesh.pp) for shard in range(mesh.tp)]
        pairs = (pair for stage, shard in at for pair in holders_of_pieces(shifted, stage=stage, shard=shard))
        return sum(len({node_of[worker] for worker in pair}) < len(pair) for pair in pairs)

    return replace(plan, mirror_shift=min(range(1, plan.mesh.dp), key=together))


def lost_since(plan: Plan, *, lost: Collection[Place]) -> frozenset[Place]:
    """Of all teams that are `lost` now, those that are gone since the state was laid out, where it is cut."""
    return plan.lost_since | (frozenset(lost) - plan.lost) if plan.shard_optimizer != "none" else plan.lost_since


def without_holder(plan: Plan, alive: Collection[Place]) -> Iterator[tuple[int, int]]:
    """(stage, piece) of each piece that no team of `alive` holds."""
    for stage in range(plan.mesh.pp):
        for piece in range(num_pieces(plan, stage=stage)):
            if not any((replica, stage) in alive for replica in holders(plan, stage=stage, piece=piece)):
                yield stage, piece


def holders_of_pieces(plan: Plan, *, stage: int, shard: int) -> Iterator[tuple[WorkerId, ...]]:
    """The workers that hold each piece of a shard of a stage, piece by piece."""
    for piece in range(num_pieces(plan, stage=stage)):
        replicas = holders(plan, stage=stage, piece=piece)
        yield tuple(plan.worker(Coord(replica, stage, shard)) for replica in replicas)


def _owners(plan: Plan, stage: int) -> tuple[int, ...]:
    gone = plan.lost - plan.lost_since
    return tuple(replica for replica in range(plan.mesh.dp) if (replica, stage) not in gone)


def _shift(plan: Plan, *, count: int) -> int:
    """How many owners further on, of `count`, the second holder of a piece is."""
    return 1 + (plan.mirror_shift - 1) % max(1, count - 1)
