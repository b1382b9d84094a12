"""How much of what replicas exchange nothing hides: a worker waits for it and has nothing to compute meanwhile.

backward   |============================|
sums                  |----- hidden ----|-- exposed --| decide | apply
step       |--------------------------------------------------------|

of the sums   exposed / (hidden + exposed)        of the steps   exposed / all, with the waits for gathered weights
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from raymega.control.events import StepCommitted
from raymega.worker.interface import TraceRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Seconds of steps, and of sums of gradients in them; `weights_s`: of waits for weights that are gathered."""

    hidden_s: float = 0.0
    exposed_s: float = 0.0
    weights_s: float = 0.0
    steps_s: float = 0.0

    @classmethod
    def of_traces(cls, rows: Mapping[str, Iterable[TraceRow]]) -> "Exposure":
        """Of one step, all workers together."""
        known = [tuple(stretches) for stretches in rows.values()]
        return cls(
            hidden_s=sum(row.duration_s for stretches in known for row in stretches if row.lane == "hidden"),
            exposed_s=sum(row.duration_s for stretches in known for row in stretches if row.name == "reduce"),
            weights_s=sum(row.duration_s for stretches in known for row in stretches if row.name == "gather"),
            steps_s=sum(_length_s(stretches) for stretches in known),
        )

    def after(self, event: object) -> "Exposure":
        """Add what was committed, as its reporter measured it."""
        if not isinstance(event, StepCommitted):
            return self
        return Exposure(
            hidden_s=self.hidden_s + event.count * event.seconds.get("hidden_reduce", 0.0),
            exposed_s=self.exposed_s + event.count * event.seconds.get("reduce", 0.0),
            weights_s=self.weights_s + event.count * event.seconds.get("gather", 0.0),
            steps_s=self.steps_s + event.count * event.step_s,
        )

    def then(self, later: "Exposure") -> "Exposure":
        """Of this launch and a later one of the run."""
        return Exposure(
            hidden_s=self.hidden_s + later.hidden_s,
            exposed_s=self.exposed_s + later.exposed_s,
            weights_s=self.weights_s + later.weights_s,
            steps_s=self.steps_s + later.steps_s,
        )

    @property
    def of_sums(self) -> float:
        return self.exposed_s / (self.hidden_s + self.exposed_s) if self.exposed_s > 0 else 0.0

    @property
    def of_steps(self) -> float:
        return (self.exposed_s + self.weights_s) / self.steps_s if self.steps_s > 0 else 0.0


def _length_s(rows: tuple[TraceRow, ...]) -> float:
    return max(row.start_s + row.duration_s for row in rows) - min(row.start_s for row in rows) if rows else 0.0
