"""What people have asked of the course of a run; it outlives every state, a controller's life included.

    hold     no leave beyond so many steps            pause, resume, step
    rates    another learning rate from a step on     set
    saves    steps that are saved beside the others   checkpoint

All of it is told by the number of a step, so that a step that is done again is done as it was.
"""

from dataclasses import dataclass

Rates = tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What was asked for.

    Args:
        hold: None: the run is not held.
        rates: (committed steps, `training.lr` of the steps after them), oldest first.
        saves: steps after which there is to be a checkpoint.
    """

    hold: int | None = None
    rates: Rates = ()
    saves: tuple[int, ...] = ()

    def with_rate(self, lr: float, *, after_step: int) -> "Course":
        """`lr` holds for the steps after `after_step`; one that was to hold from there on never does."""
        earlier = tuple(rate for rate in self.rates if rate[0] < after_step)
        return Course(hold=self.hold, rates=(*earlier, (after_step, lr)), saves=self.saves)

    def with_save(self, step: int, *, safe_step: int) -> "Course":
        """A checkpoint is wanted after `step`; up to `safe_step` there are some already."""
        later = {step, *(save for save in self.saves if save > safe_step)}
        return Course(hold=self.hold, rates=self.rates, saves=tuple(sorted(later)))
