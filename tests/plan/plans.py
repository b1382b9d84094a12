"""Plans for the tests of this room and of those above it."""

from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes
from raymega.plan.stages import balanced_layers


def make_plan(
    *,
    dp: int = 1,
    pp: int = 1,
    tp: int = 1,
    num_microbatches: int = 4,
    chunks: int = 1,
    schedule: str = "1f1b",
    routes: tuple[tuple[int, ...], ...] | None = None,
) -> Plan:
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    return Plan(
        mesh=mesh,
        workers=tuple(f"w{rank}" for rank in range(mesh.size)),
        layers=balanced_layers(pp * chunks, num_stages=pp * chunks),
        routes=routes or straight_routes(num_microbatches=num_microbatches, mesh=mesh),
        microbatch_size=2,
        schedule=schedule,
    )
