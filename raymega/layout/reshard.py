"""What has to travel when boxes change hands: old layout, new layout, who lives -> moves.

    layers.7.mlp.up      old, tp=2                new, tp=3
                         w0 | 0 1 2 3 4 5         w0 | 0 1 2 3            keeps 0:4
                         w1 | 6 7 8 9 A B         w1 |         4 5 6 7    keeps 6:8, gets 4:6 from w0
                                                  w2 | 8 9 A B            gets 8:12 from w1

Whatever a receiver holds already stays; the rest comes from the nearest living holder: one on its own node if there
is one, else the one that has sent least so far. A move stands for all kinds of state held in that box (parameter and
optimizer moments). Source: overlap of boxes as in PyTorch distributed checkpoint's resharding.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from raymega.errors import StateLost
from raymega.layout.param_layout import Holding
from raymega.layout.shard_box import Box, uncovered
from raymega.plan.plan import WorkerId


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Copy `box` of tensor `name` from one worker to another."""

    receiver: WorkerId
    name: str
    box: Box
    source: WorkerId


Layout = Mapping[WorkerId, Sequence[Holding]]
"""Who holds which boxes, copies included."""


def moves(*, old: Layout, new: Layout, alive: frozenset[WorkerId], node_of: Mapping[WorkerId, str]) -> tuple[Move, ...]:
    """List the copies that turn `old` into `new`.

    Every element of every box of `new` is kept by its holder or written exactly once; what a receiver holds under
    `old` never travels to it, so no list of moves carries fewer elements. The answer depends on the arguments only.

    Args:
        old: who holds which box now.
        new: who shall hold which box; its workers are alive. The boxes of one worker and tensor are disjoint.
        alive: workers that can still send; may lack workers of `old`.
        node_of: where each worker of `alive` is.
    Returns:
        Moves by receiver (in the order of `new`), tensor and offset; empty if nothing has to travel.
    Raises:
        StateLost: no worker in `alive` holds some box; facts: `lost`, all of them as (name, box).
    """
    held = {worker: _by_name(old[worker]) for worker in sorted(old) if worker in alive}
    holders: dict[str, list[WorkerId]] = defaultdict(list)
    for worker, boxes in held.items():
        for name in boxes:
            holders[name].append(worker)
    sent: dict[WorkerId, int] = defaultdict(int)
    found: list[Move] = []
    lost: list[tuple[str, Box]] = []
    for receiver, holdings in new.items():
        for name, box in sorted({(holding.name, holding.box) for holding in holdings}):
            rest = uncovered(box, by=held.get(receiver, {}).get(name, ()))
            peers = sorted(holders[name], key=lambda w: (node_of[w] != node_of[receiver], sent[w], w))
            got: list[Move] = []
            for source in peers:
                if not rest:
                    break
                got += _overlaps(receiver, name, rest, source, held[source][name])
                rest = tuple(piece for part in rest for piece in uncovered(part, by=held[source][name]))
            for move in got:
                sent[move.source] += move.box.num_elements
            found += sorted(got, key=lambda move: move.box)
            lost += [(name, part) for part in rest]
    if lost:
        raise StateLost(_lost_message(lost), lost=tuple(lost))
    return tuple(found)


def _overlaps(
    receiver: WorkerId, name: str, wanted: Iterable[Box], source: WorkerId, boxes: Iterable[Box]
) -> list[Move]:
    """Moves of what `source` holds of `wanted`, each element once though its boxes may overlap."""
    found = []
    rest = tuple(wanted)
    for box in boxes:
        common = [part for part in (want.overlap(box) for want in rest) if part is not None]
        found += [Move(receiver=receiver, name=name, box=part, source=source) for part in common]
        rest = tuple(piece for part in rest for piece in part.minus(box))
    return found


def _by_name(holdings: Sequence[Holding]) -> dict[str, list[Box]]:
    boxes: dict[str, list[Box]] = defaultdict(list)
    for holding in holdings:
        if holding.box.num_elements:
            boxes[holding.name].append(holding.box)
    return dict(boxes)


def _lost_message(lost: Sequence[tuple[str, Box]]) -> str:
    name, box = lost[0]
    others = f" and {len(lost) - 1} more boxes" if len(lost) > 1 else ""
    return f"{name} {box}{others} had no living holder. The state comes back from a checkpoint only."
