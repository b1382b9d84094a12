"""What a controller does to move a live run of threads to another plan: assign, gather parts, certify, or go back."""

from dataclasses import dataclass, replace
from itertools import pairwise

import torch

from raymega.config.schema import Config
from raymega.layout.certificate import Certified, Refused, certify
from raymega.mesh import Mesh
from raymega.model.stage import specs_of
from raymega.plan.plan import Plan, ShardOptimizer, straight_routes
from raymega.plan.transition import Transition
from raymega.worker.interface import Assignment, Moved
from raymega.worker.state import TrainState, kinds_of
from tests.worker.rig import ThreadRun


@dataclass(frozen=True, kw_only=True)
class Move:
    """What came of a move, by worker."""

    moved: dict[str, Moved]
    verdict: Certified | Refused

    @property
    def bytes_received(self) -> int:
        return sum(moved.bytes_received for moved in self.moved.values())


def layout(
    config: Config, *, workers: list[str], dp: int, tp: int, layers: list[int], shard_optimizer: ShardOptimizer = "none"
) -> Plan:
    """`dp` replicas of `len(layers)` stages with so many layers each, on the first of `workers`."""
    mesh = Mesh(dp=dp, tp=tp, pp=len(layers))
    ends = [sum(layers[:stage]) for stage in range(len(layers) + 1)]
    training = config.training
    return Plan(
        mesh=mesh,
        workers=tuple(workers[: mesh.size]),
        layers=tuple(pairwise(ends)),
        routes=straight_routes(num_microbatches=training.batch_size // training.micro_batch_size, mesh=mesh),
        microbatch_size=training.micro_batch_size,
        shard_optimizer=shard_optimizer,
    )


def without_team(plan: Plan, place: tuple[int, int]) -> Plan:
    """The plan without one team; its micro-batches go to the first replica that is left at that stage."""
    replica, stage = place
    other = next(r for r in range(plan.mesh.dp) if r != replica)
    routes = tuple(tuple(other if (r, s) == place else r for s, r in enumerate(route)) for route in plan.routes)
    assert stage < plan.mesh.pp
    return replace(plan, routes=routes, lost=plan.lost | {place})


def begin_move(
    run: ThreadRun, *, old: Plan, new: Plan, generation: int, step: int, settle: bytes | None = None
) -> Transition:
    """Send the assignments of a transition."""
    everyone = sorted({*old.living, *new.living})
    nodes = {worker: f"n{int(worker[1:]) // 2}" for worker in everyone}
    transition = Transition(old=old, senders=old.living, node_of=nodes)
    for name in transition.members(new):
        run.workers[name].start(
            Assignment(
                generation=generation, plan=new, step=step, store=("127.0.0.1", 0), settle=settle, move=transition
            )
        )
    return transition


def end_move(run: ThreadRun, transition: Transition, *, new: Plan, generation: int, step: int) -> Move:
    """Wait for what all say, and judge it."""
    members = transition.members(new)
    found = run.wait_for(Moved, workers=members, generation=generation)
    moved = dict(zip(members, found, strict=True))
    verdict = certify(
        specs=specs_of(run.config), kinds=kinds_of(run.config), transition=transition, new=new, step=step,
        parts={name: one.part for name, one in moved.items()},
    )  # fmt: skip
    return Move(moved=moved, verdict=verdict)


def move(run: ThreadRun, *, old: Plan, new: Plan, generation: int, step: int, settle: bytes | None = None) -> Move:
    transition = begin_move(run, old=old, new=new, generation=generation, step=step, settle=settle)
    return end_move(run, transition, new=new, generation=generation, step=step)


def go_back(run: ThreadRun, plan: Plan, *, broken: int, step: int) -> int:
    """Leave the generation `broken`, and hold the state by `plan` in the one that is returned."""
    for name in plan.living:
        run.workers[name].abort(broken)
        while run.leaving(name).generation < broken:
            pass
    run.assign(plan, generation=broken + 1, step=step, keep_state=True)
    return broken + 1


def bits(state: TrainState) -> dict[tuple[str, str, str], torch.Tensor]:
    """A copy of all that is held, and of the optimizers' counters."""
    held = {(item.name, item.kind, str(item.box)): item.tensor.clone() for item in state.items()}
    pieces = [piece for chunk in state.chunks.values() for piece in chunk.pieces]
    return held | {("updates", str(n), ""): piece.optimizer.updates.clone() for n, piece in enumerate(pieces)}


def same_bits(one: dict[tuple[str, str, str], torch.Tensor], other: dict[tuple[str, str, str], torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)
