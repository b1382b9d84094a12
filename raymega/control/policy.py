"""How far, how often and how long: the numbers behind the decisions, each a pure function.

how far may workers run ahead?       granted_until
which steps are saved, evaluated?    save_steps, eval_steps
when is it tried again?              back_off_s
what does a stop exit with?          stop_exit_code
"""

import math
from dataclasses import dataclass
from statistics import median

from raymega.config.schema import Config
from raymega.control.states import StopBy

AHEAD_S = 0.75  # a guess: far above a control call (a millisecond), low enough for a stop to feel prompt
LEAST_AHEAD = 2  # the step in flight and one more, so that no worker waits for leave between steps
MOST_AHEAD = 1000
LONG_S = 10.0  # a guess: of such a step the way of a leave, some milliseconds, is next to nothing
RECENT_STEPS = 8
FIRST_BACK_OFF_S = 0.5
LONGEST_BACK_OFF_S = 30.0
RESUMABLE = 75


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a config says about the course of a run. Times in seconds; a cadence of 0 is never.

    What is evaluated and saved is what workers evaluate and save: both follow the same config. `counts_steps`: hands
    may tell of many like steps at once; those of a run tell of each, which has its own loss.
    """

    steps: int
    batch_size: int
    save_every: int
    eval_every: int
    min_devices: int
    max_restarts: int
    max_nonfinite_steps: int
    save_timeout_s: float
    start_timeout_s: float
    lease_s: float
    repairs: bool = True
    codes: bool = False  # gradients are summed with fewer bits
    standbys: int = 0
    steady_s: float = 0.0
    counts_steps: bool = False

    @classmethod
    def of(cls, config: Config, *, validates: bool) -> "Rules":
        """The rules of `config`; `validates`: there is a validation split to evaluate on."""
        return cls(
            steps=config.training.steps,
            batch_size=config.training.batch_size,
            save_every=config.checkpoint.every_steps,
            eval_every=config.training.eval_every if validates else 0,
            min_devices=config.elastic.min_devices,
            max_restarts=config.elastic.max_restarts,
            max_nonfinite_steps=config.training.max_nonfinite_steps,
            save_timeout_s=config.checkpoint.timeout_s,
            start_timeout_s=config.elastic.group_timeout_s,
            lease_s=config.elastic.lease_s,
            repairs=config.elastic.boundary_log != "off",
            codes=config.parallelism.grad_compression != "none",
            standbys=config.elastic.standbys,
            steady_s=config.elastic.steady_s,
        )

    def is_saved(self, step: int) -> bool:
        """Is a snapshot taken after `step` steps as a matter of course? The last step always is."""
        return step == self.steps or (self.save_every > 0 and step % self.save_every == 0)

    def next_kept(self, step: int) -> int:
        """The first step after `step` that is saved or evaluated, or the last one."""
        cadences = (every for every in (self.save_every, self.eval_every) if every > 0)
        return min(self.steps, *((step // every + 1) * every for every in cadences), self.steps)

    def is_evaluated(self, step: int) -> bool:
        """Is the validation loss taken after `step` steps? Where any is, the last step's is."""
        return self.eval_every > 0 and (step % self.eval_every == 0 or step == self.steps)


def steps_ahead(recent_step_s: tuple[float, ...]) -> int:
    """Steps that make up about `AHEAD_S` of work, at least two; of long steps one, so that boundaries are near."""
    if not recent_step_s:
        return LEAST_AHEAD
    step_s = median(recent_step_s)
    return 1 if step_s >= LONG_S else max(LEAST_AHEAD, min(MOST_AHEAD, math.ceil(AHEAD_S / max(step_s, 1e-6))))


def granted_until(*, committed: int, granted: int, recent_step_s: tuple[float, ...], steps: int) -> int:
    """The step that workers may run to: `steps_ahead`, never beyond the last.

    The leave is extended only once half of it is used, so that short steps cost no control message each.
    """
    return extended(committed=committed, granted=granted, ahead=steps_ahead(recent_step_s), steps=steps)


def extended(*, committed: int, granted: int, ahead: int, steps: int) -> int:
    """The leave, `ahead` steps beyond those that are committed once half of that is used."""
    if granted - committed > ahead // 2:
        return granted
    return max(granted, min(steps, committed + ahead))


def save_steps(rules: Rules, *, after: int, until: int) -> tuple[int, ...]:
    """The steps in (after, until] that are saved as a matter of course."""
    return tuple(step for step in range(after + 1, until + 1) if rules.is_saved(step))


def eval_steps(rules: Rules, *, after: int, until: int) -> tuple[int, ...]:
    """The steps in (after, until] that are followed by a validation."""
    return tuple(step for step in range(after + 1, until + 1) if rules.is_evaluated(step))


def back_off_s(recoveries: int) -> float:
    """Seconds to wait before the n-th recovery (from 1) in a row without progress: 0, 0.5, 1, 2, .., 30."""
    return 0.0 if recoveries <= 1 else min(LONGEST_BACK_OFF_S, FIRST_BACK_OFF_S * 2.0 ** (recoveries - 2))


def settle_s(rules: Rules, recent_step_s: tuple[float, ...]) -> float:
    """How long members of a broken generation may take to answer: they do so between two actions of a step."""
    return 2 * rules.lease_s + 5.0 + (max(recent_step_s) if recent_step_s else 0.0)


def stop_exit_code(by: StopBy, *, saved: bool) -> int:
    """What a run that was stopped before its last step exits with; `saved`: nothing committed is lost."""
    match by:
        case "user":
            return 0 if saved else RESUMABLE
        case "interrupt":
            return 130
        case "terminate" | "hangup":
            return RESUMABLE if saved else 143
        case "client_gone" | "deadline":
            return RESUMABLE
