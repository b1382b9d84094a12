"""What a run's config says to the brain: its rules, which plan it has for which devices, and what state it moves."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from raymega.config.schema import Config
from raymega.control.decision import Brain
from raymega.control.outlook import Wish
from raymega.control.policy import Rules
from raymega.control.states import Seat
from raymega.layout.certificate import Certified, Refused, StatePart, certify, held_by, sent_by
from raymega.layout.copies import Home, Keeping, keepers
from raymega.layout.param_layout import param_specs
from raymega.layout.param_spec import ParamSpec
from raymega.layout.reshard import moves
from raymega.plan.plan import Plan, WorkerId
from raymega.plan.planner import PlanChoice, plan_for
from raymega.plan.resize import as_mesh, on_devices
from raymega.plan.room import Room, room_of
from raymega.plan.transition import Transition

ELEMENT_BYTES = 4  # state is fp32


def brain_of(config: Config, *, rules: Rules) -> Brain:
    """The brain of a run of `config`. The state of a user's own model is known to its workers only: it stays."""

    def planned(seats: tuple[Seat, ...]) -> PlanChoice:
        return plan_for(config, workers=_nodes(seats), room=_room(config, seats))

    if config.model.custom is not None:
        return Brain(rules=rules, plan_for=planned)
    moves = ConfigMoves(config=config)
    return Brain(
        rules=rules, plan_for=planned, moves=moves, copies_for=moves.copies_for if config.elastic.copies_every else None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMoves:
    """`control.decision.Moves` of a run's config."""

    config: Config

    @property
    def specs(self) -> tuple[ParamSpec, ...]:
        """Every parameter of the model."""
        return param_specs(self.config.model, seq_len=self.config.data.seq_len)

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of the state that each of them has."""
        moments = () if self.config.training.optimizer == "sgd" else ("exp_avg", "exp_avg_sq")
        return ("param", *moments)

    def plan_for(self, seats: tuple[Seat, ...], wish: Wish) -> PlanChoice:
        asked = self.config
        if wish.mesh is not None:
            asked = as_mesh(self.config, wish.mesh)
        elif wish.devices is not None:
            asked = on_devices(self.config, wish.devices)
        return plan_for(asked, workers=_nodes(seats), room=_room(asked, seats))

    def lacks(self, plan: Plan, seats: tuple[Seat, ...]) -> str | None:
        room = _room(self.config, seats)
        return room.why_not(plan, node_of=_nodes(seats)) if room is not None else None

    def busiest_bytes(self, transition: Transition, new: Plan) -> int:
        specs = self.specs
        found = moves(
            old=sent_by(transition, specs=specs),
            new=held_by(new, specs=specs, workers=new.living),
            alive=frozenset(transition.senders),
            node_of=transition.node_of,
        )
        received, sent = Counter[WorkerId](), Counter[WorkerId]()
        for move in found:
            received[move.receiver] += move.box.num_elements
            sent[move.source] += move.box.num_elements
        return max((*received.values(), *sent.values()), default=0) * len(self.kinds) * ELEMENT_BYTES

    def copies_for(self, plan: Plan, homes: Mapping[WorkerId, Home]) -> Keeping:
        """Who keeps a copy of whose state by `plan`."""
        return keepers(plan, specs=self.specs, homes=homes, tolerate=self.config.elastic.tolerate_nodes)

    def certify(
        self, transition: Transition, new: Plan, *, step: int, parts: Mapping[WorkerId, StatePart]
    ) -> Certified | Refused:
        return certify(specs=self.specs, kinds=self.kinds, transition=transition, new=new, step=step, parts=parts)


def _nodes(seats: tuple[Seat, ...]) -> dict[WorkerId, str]:
    return {seat.worker: seat.node for seat in seats}


def _room(config: Config, seats: tuple[Seat, ...]) -> Room | None:
    """What the devices of these seats hold, as far as that is known."""
    known = {seat.node: seat.usable_bytes for seat in seats if seat.usable_bytes is not None}
    return room_of(config, usable_bytes=known)
