"""What a run's config says to the brain: its rules, and which plan it has for which devices."""

from raymega.config.schema import Config
from raymega.control.decision import Brain
from raymega.control.policy import Rules
from raymega.control.states import Seat
from raymega.plan.planner import PlanChoice, plan_for


def brain_of(config: Config, *, rules: Rules) -> Brain:
    """The brain of a run of `config`."""

    def planned(seats: tuple[Seat, ...]) -> PlanChoice:
        return plan_for(config, workers={seat.worker: seat.node for seat in seats})

    return Brain(rules=rules, plan_for=planned)
