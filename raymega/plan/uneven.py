"""Plans that use every team that is left: stages with fewer teams hold fewer layers, and work is spread evenly.

    dp=2 pp=3, six blocks                    one team of stage 1 is lost
      replica 0 | 0 1   2 3   4 5              | 0 1   2 3   4 5   without it: its peer does the work of two
      replica 1 | 0 1   2 3   4 5              | 0 1    -    4 5
                                               | 0 1    2    3 4 5 uneven: what a team does is as even as blocks allow

Every function gives a new plan, whose state is cut over the teams that live (`lost_since` is empty); who holds what of
it, and what has to travel, follows from the layout.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import cycle, islice, zip_longest

from raymega.mesh import Mesh
from raymega.plan.plan import Place, Plan, WorkerId
from raymega.plan.stages import Layers, layers_of_counts

Team = tuple[WorkerId, ...]  # by shard
NOBODY = "none"  # with the rank: at the places of teams that are not there
LIVING_KNOWN = 16  # sets of living teams whose routes are remembered: a change asks for the same ones several times


def work_of(plan: Plan) -> float:
    """How long a step of `plan` takes, in forwards and backwards of one block by one device.

    Counts the busiest team of the slowest stage, and the way of one micro-batch through the others; every block is as
    dear as any other, and shards divide the work (a guess: embedding, head and exchange are left out).
    """
    blocks = _blocks(plan)
    paths = (count * held + sum(blocks) - held for count, held in zip(plan.busiest, blocks, strict=True))
    return max(paths) / plan.mesh.tp


def without_teams(plan: Plan, gone: Collection[Place]) -> Plan | None:
    """The plan without the teams `gone`, their work spread over their peers; None if a stage would have none left."""
    lost = plan.lost | frozenset(gone)
    living = _living(plan.mesh, lost)
    if not all(living):
        return None
    routes = spread_routes(num_microbatches=plan.num_microbatches, living=living)
    if lost == plan.lost and routes == plan.routes and not plan.lost_since:
        return plan
    return replace(plan, lost=lost, routes=routes, lost_since=frozenset())


def with_teams(plan: Plan, filled: Mapping[Place, Team]) -> Plan:
    """The plan with other workers in the places `filled`, which live again."""
    workers = list(plan.workers)
    for (replica, stage), team in filled.items():
        for rank, worker in zip(plan.mesh.team(replica=replica, stage=stage), team, strict=True):
            workers[rank] = worker
    lost = plan.lost - frozenset(filled)
    routes = spread_routes(num_microbatches=plan.num_microbatches, living=_living(plan.mesh, lost))
    return replace(plan, workers=tuple(workers), lost=lost, routes=routes, lost_since=frozenset())


def uneven_plan(plan: Plan, *, kept: Collection[Place], more: Sequence[Team]) -> Plan | None:
    """As many stages as before, on the teams `kept` and `more`; layers by the number of teams that a stage has.

    None if there are fewer teams than stages, if a stage would have no layer of its own, or if stages have chunks.
    """
    tp, pp = plan.mesh.tp, plan.mesh.pp
    teams = [plan.workers[first : first + tp] for first in range(0, plan.mesh.size, tp)]
    stages: list[list[Team]] = [[] for _ in range(pp)]
    for replica, stage in sorted(kept):
        stages[stage].append(teams[replica * pp + stage])
    for team in more:
        min(stages, key=len).append(team)
    while max(map(len, stages)) - min(map(len, stages)) > 1 or not min(map(len, stages)):
        if max(map(len, stages)) < 2:
            return None
        min(stages, key=len).append(max(stages, key=len).pop())
    if plan.num_chunks > 1 or plan.table or plan.num_layers < len(stages):
        return None
    return _laid_out(plan, stages, layers=_layers_by_teams(plan.num_layers, teams=tuple(map(len, stages))))


@lru_cache(maxsize=LIVING_KNOWN)
def spread_routes(*, num_microbatches: int, living: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    """Each micro-batch's replica at each stage, in turn over those that live: quotas differ by one at most."""
    in_turn = (islice(cycle(replicas), num_microbatches) for replicas in living)
    return tuple(zip(*in_turn, strict=True))


def _laid_out(plan: Plan, stages: Sequence[Sequence[Team]], *, layers: Layers) -> Plan:
    """Teams into the mesh that has room for the stage with most of them; places without a team are lost."""
    mesh = Mesh(dp=max(map(len, stages)), pp=plan.mesh.pp, tp=plan.mesh.tp)
    workers = [worker for row in zip_longest(*stages) for team in row for worker in team or (NOBODY,) * mesh.tp]
    for rank in [rank for rank, worker in enumerate(workers) if worker == NOBODY]:
        workers[rank] = f"{NOBODY}{rank}"
    lost = frozenset((r, s) for s, teams in enumerate(stages) for r in range(len(teams), mesh.dp))
    routes = spread_routes(num_microbatches=plan.num_microbatches, living=_living(mesh, lost))
    return replace(
        plan, mesh=mesh, workers=tuple(workers), layers=layers, lost=lost, routes=routes, lost_since=frozenset(),
        in_flight=_in_flight(plan, layers=layers),
    )  # fmt: skip


def _in_flight(plan: Plan, *, layers: Layers) -> tuple[int, ...]:
    """The most activations of a team of each stage: as many as keep the stages after it at work.

    While its micro-batch passes the blocks from this stage on and comes back, a team with few of them begins others:
    so it holds the activations of as many blocks as there are from it on, where even stages hold just as many.
    """
    blocks, pp = [end - first for first, end in layers], len(layers)
    own = (
        plan.order.in_flight(stage=stage, num_stages=pp, num_microbatches=plan.num_microbatches) for stage in range(pp)
    )
    return tuple(max(most, -(-sum(blocks[s:]) // blocks[s])) for s, most in enumerate(own))


@lru_cache(maxsize=LIVING_KNOWN)
def _layers_by_teams(num_layers: int, *, teams: tuple[int, ...]) -> Layers:
    """Blocks of each stage so that the most that one of its teams has to do is least; at least one each."""
    counts = [1] * len(teams)
    for _ in range(num_layers - len(teams)):
        lightest = min(range(len(teams)), key=lambda stage: ((counts[stage] + 1) / teams[stage], stage))
        counts[lightest] += 1
    return layers_of_counts(tuple(counts))


def _living(mesh: Mesh, lost: Collection[Place]) -> tuple[tuple[int, ...], ...]:
    stages, everyone = {stage for _, stage in lost}, tuple(range(mesh.dp))
    return tuple(
        tuple(r for r in everyone if (r, stage) not in lost) if stage in stages else everyone
        for stage in range(mesh.pp)
    )


def _blocks(plan: Plan) -> list[int]:
    """Blocks that each stage holds, over its chunks."""
    sizes = [end - first for first, end in plan.layers]
    if plan.num_chunks == 1:
        return sizes
    return [sum(sizes[v] for v in plan.chunks_of(stage)) for stage in range(plan.mesh.pp)]
