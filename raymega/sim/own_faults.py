"""When the nodes of a run that was made came and went, from its journal: its own faults, for a simulation of it.

    NodesChanged 4                 0.9 s  4 nodes      before it heard of any, it had none
    WorkerLost w2, NodesChanged 3  31.2 s  3 nodes     from the last sign of life on; the node of w2 is gone
    NodesChanged 4                 55.0 s  4 nodes
    WorkerLost w0                  70.0 s  3 nodes, and 4 again at once: its device stays, and takes a fresh worker

A notice that a node is to go is no part of it: it goes as if without.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from raymega.control.events import NodesChanged, WorkerBorn, WorkerLost
from raymega.control.loop import Turn
from raymega.errors import StateError
from raymega.plan.plan import WorkerId
from raymega.sim.node_trace import NodeTrace

SOON_S = 10.0  # from a worker's loss to the news of its node's
AT_ONCE_S = 1e-3
UNBORN_S = 1.0  # a guess: from the end of a process that was not up yet to the news of it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """From `at_s` on so many nodes, without those of `gone`."""

    at_s: float
    nodes: int
    gone: tuple[WorkerId, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    at_s: float
    worker: WorkerId


def own_faults(turns: Iterable[Turn], *, began_t: float, node_devices: int = 1) -> NodeTrace:
    """The nodes that a run had, from `began_t` to its last turn.

    Args:
        node_devices: that stand for one node.
    Raises: StateError if it never heard of any.
    """
    counts, losses, born, end_s = [_Row(at_s=0.0, nodes=0)], list[_Loss](), set[WorkerId](), 0.0
    for turn in turns:
        end_s = turn.t - began_t
        match turn.event:
            case NodesChanged(nodes=nodes):
                counts.append(_Row(at_s=end_s, nodes=sum(node.devices for node in nodes) // node_devices))
            case WorkerBorn(worker=worker, also=also):
                born |= {worker, *also}
            case WorkerLost() as lost:
                for said in (lost, *lost.also):
                    silent_s = said.silent_s if said.worker in born else UNBORN_S  # which has never given a sign
                    losses.append(_Loss(at_s=end_s - silent_s, worker=said.worker))
    dated, alone = _dated(counts, sorted(losses, key=_when), node_devices=node_devices)
    rows = _in_order([*dated, *_stood_in(dated, alone)])
    if not any(row.nodes for row in rows):
        raise StateError("This run never had a node, so there is nothing to simulate. Name one that has trained.")
    return NodeTrace(
        rows=tuple((row.at_s, row.nodes) for row in rows),
        end_s=max(end_s, rows[-1].at_s + AT_ONCE_S),
        leaving=tuple((row.at_s, row.gone) for before, row in pairwise(rows) if row.nodes < before.nodes),
    )


def _dated(counts: Sequence[_Row], losses: list[_Loss], *, node_devices: int) -> tuple[list[_Row], list[_Loss]]:
    """Counts, of which those that fall are dated by the first loss that they tell of; losses that none tells of."""
    dated, alone = [counts[0]], losses
    for before, row in pairwise(counts):
        since_s, many = max(before.at_s, row.at_s - SOON_S), max(0, before.nodes - row.nodes) * node_devices
        told = [loss for loss in alone if since_s < loss.at_s <= row.at_s][:many]
        alone = [loss for loss in alone if loss not in told]
        at_s = min([row.at_s, *map(_when, told)])
        dated.append(_Row(at_s=at_s, nodes=row.nodes, gone=tuple(loss.worker for loss in told)))
    return dated, alone


def _stood_in(counts: list[_Row], losses: Sequence[_Loss]) -> Iterable[_Row]:
    """Losses of workers whose devices stay, and take others."""
    for at_s, group in groupby(losses, key=_when):
        gone = tuple(loss.worker for loss in group)
        there = [row.nodes for row in counts if row.at_s <= at_s][-1]
        yield _Row(at_s=at_s, nodes=max(0, there - len(gone)), gone=gone)
        yield _Row(at_s=at_s + AT_ONCE_S, nodes=there)


def _in_order(counts: Iterable[_Row]) -> list[_Row]:
    """By time; of those at one time the last; without what changes nothing."""
    rows = list[_Row]()
    for row in sorted(counts, key=_when):
        if rows and row.at_s <= rows[-1].at_s:
            rows.pop()
        if not rows or row.nodes != rows[-1].nodes:
            rows.append(row)
    return rows


def _when(what: _Row | _Loss) -> float:
    return what.at_s
