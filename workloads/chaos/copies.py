"""State without replicas: what copies in the memory of peers hold up, and what a run goes back to that needs them.

stall       seconds that a step was held up by its snapshot, and by a copy that was late, of all its seconds
restored    the only holders of a stage are killed, f at once, at any point of a step: state comes from the copies,
            certified by fingerprint, and at most `copies_every` steps are done again
"""

import random
import signal
from dataclasses import dataclass

from raymega.control.events import StepCommitted
from raymega.control.states import Finished
from workloads.chaos.arena import Arena, Outcome
from workloads.chaos.hands import ProcessHands
from workloads.chaos.kills import check_undisturbed
from workloads.chaos.rewinds import restored, rewinds
from workloads.chaos.toy import Layout, config_of

LARGER = {
    "hidden_size": 256, "num_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "ffn_size": 1024,
    "vocab_size": 97,
}  # fmt: skip
WAIT_S = 0.08  # of each action, so that a step lasts about a second and the processors have time beside it
KINDS = 3  # of state: values and two moments
LIMIT_S = 120.0
FIRST, EVERY = 4, 4  # steps: before the first loss, and from loss to loss


@dataclass(frozen=True, kw_only=True)
class Stalled:
    """What copies of `state_bytes` a worker held up over some steps."""

    steps: int
    every: int
    state_bytes: int
    step_s: float
    stall_s: float

    def __str__(self) -> str:
        share = self.stall_s / self.step_s
        return (
            f"copies every {self.every} steps of {self.state_bytes / 1e6:.1f} MB a worker: {self.steps} steps of "
            f"{self.step_s / self.steps:.2f} s were held up {1e3 * self.stall_s / self.steps:.2f} ms each, {share:.3%}"
        )


@dataclass(frozen=True, kw_only=True)
class Restored:
    """A run whose stages lost all their holders, and that ended as if they had not."""

    layout: Layout
    at_once: int
    losses: int
    restored: int
    again: int
    seconds: tuple[float, ...]

    def __str__(self) -> str:
        return (
            f"{self.layout}, {self.at_once} nodes lost at once, {self.losses} times: state came {self.restored} times "
            f"from copies, {self.again} steps done again; from the loss to the next commit "
            f"{', '.join(f'{one:.1f}' for one in sorted(self.seconds))} s"
        )


def stalled(*, steps: int, every: int) -> Stalled:
    """Two stages without replicas that keep copies of each other."""
    layout = Layout(dp=1, tp=1, pp=2)
    config = config_of(layout, steps=steps, model=LARGER, optimizer="adamw", copies_every=every)
    with Arena.open(config, devices={"n0": 1, "n1": 1}, wait_s=WAIT_S) as arena:
        found = arena.run()
        assert isinstance(found.end, Finished), found.end
    elements = KINDS * sum(weight.numel() for weight in found.weights.values())
    told = [turn.event for turn in found.turns if isinstance(turn.event, StepCommitted)][2:]
    return Stalled(
        steps=len(told), every=every, state_bytes=4 * elements // 2, step_s=sum(event.step_s for event in told),
        stall_s=sum(event.seconds["copies"] for event in told),
    )  # fmt: skip


def outlived(layout: Layout, *, at_once: int, losses: int, seed: int = 0) -> Restored:
    """Kill `at_once` only holders, `losses` times. Raises: AssertionError if anything but time is lost."""
    devices = {f"n{number}": 1 for number in range(layout.size + at_once)}
    config = config_of(
        layout, steps=FIRST + EVERY * losses + 2, copies_every=1, tolerate_nodes=at_once, steady_s=0.0, every_steps=0
    )
    seconds: list[float] = []
    with Arena.open(config, devices=devices, wait_s=0.02, changes_plans=True) as arena:
        calm = arena.run()
        found = arena.run(beside=lambda hands: _lose(arena, hands, seconds, at_once=at_once, losses=losses, seed=seed))
    return _judged(found, calm, Restored(
        layout=layout, at_once=at_once, losses=losses, restored=restored(found), again=0, seconds=tuple(seconds)
    ))  # fmt: skip


def _lose(arena: Arena, hands: ProcessHands, seconds: list[float], *, at_once: int, losses: int, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(losses):
        due = FIRST + EVERY * number
        assert hands.wait_for(lambda due=due: len(hands.kept.records) >= due, LIMIT_S), f"hangs at {due}"
        victims = dice.sample(hands.kept.assigned[-1].plan.living, at_once)
        before = max(hands.kept.committed_at.values())
        for worker in victims:
            arena.crew.signal(worker, signal.SIGKILL)
        step = len(hands.kept.records) + 2
        assert hands.wait_for(lambda step=step: len(hands.kept.records) >= step, LIMIT_S), f"hangs at {step}"
        seconds.append(hands.kept.committed_at[step] - before)


def _judged(found: Outcome, calm: Outcome, told: Restored) -> Restored:
    assert isinstance(found.end, Finished), found.end
    assert found.end.exit_code == 0
    check_undisturbed(found, calm=calm)
    back = rewinds(found, copies_every=1)
    assert all(one.from_copies for one in back), back
    return Restored(
        layout=told.layout, at_once=told.at_once, losses=told.losses, restored=told.restored,
        again=sum(one.committed - one.to for one in back), seconds=told.seconds,
    )  # fmt: skip
