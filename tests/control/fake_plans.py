"""What the brain of these tests lays over seats, and what it is told of state that moves."""

from collections.abc import Mapping
from dataclasses import dataclass

from raymega.control.outlook import Wish
from raymega.control.states import Seat
from raymega.errors import PlanError
from raymega.layout.certificate import Certified, Refused, StatePart
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, WorkerId, straight_routes
from raymega.plan.transition import Transition


@dataclass(frozen=True, kw_only=True)
class Choice:
    plan: Plan
    reason: str


def plan_for(seats: tuple[Seat, ...]) -> Choice:
    """As many replicas of a two-stage pipeline as fit, two at most; one worker alone where only one is left."""
    if not seats:
        raise PlanError("no device is left")
    mesh = Mesh(dp=min(2, len(seats) // 2), pp=2, tp=1) if len(seats) > 1 else Mesh(dp=1, pp=1, tp=1)
    return _laid_out(seats, mesh)


def _laid_out(seats: tuple[Seat, ...], mesh: Mesh) -> Choice:
    layers = ((0, 2), (2, 4)) if mesh.pp == 2 else ((0, 4),)
    workers = tuple(seat.worker for seat in seats[: mesh.size])
    routes = straight_routes(num_microbatches=4, mesh=mesh)
    return Choice(
        plan=Plan(mesh=mesh, workers=workers, layers=layers, routes=routes, microbatch_size=2), reason=f"{mesh}"
    )


@dataclass(frozen=True, kw_only=True)
class FakeMoves:
    """Any plan may follow any other; what workers say is refused if one of them stands at another step."""

    num_bytes: int = 1_000_000

    def plan_for(self, seats: tuple[Seat, ...], wish: Wish) -> Choice:
        if wish.mesh is not None and wish.mesh.size <= len(seats):
            return _laid_out(seats, wish.mesh)
        if wish.devices is not None:
            devices = min(wish.devices, len(seats))
            if not devices:
                raise PlanError("0 devices are there. Add one.")
            return _laid_out(seats, Mesh(dp=max(1, devices // 2), pp=min(devices, 2), tp=1))
        return plan_for(seats)

    def lacks(self, plan: Plan, seats: tuple[Seat, ...]) -> str | None:
        return None

    def busiest_bytes(self, transition: Transition, new: Plan) -> int:
        assert set(transition.members(new)) <= set(transition.node_of)
        return self.num_bytes

    def certify(
        self, transition: Transition, new: Plan, *, step: int, parts: Mapping[WorkerId, StatePart]
    ) -> Certified | Refused:
        assert set(parts) == set(transition.members(new))
        wrong = tuple(f"{name} is at step {part.step}" for name, part in parts.items() if part.step != step)
        return Refused(faults=wrong) if wrong else Certified(reason="all is there once", bytes_moved=self.num_bytes)
