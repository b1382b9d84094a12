"""What a worker does, one action after the other: a schedule is data.

    2F0        stage 2 runs the forward of micro-batch 0; its program prints as `2F0 2F1 2B0 2F2 2B1 2B2`

    0F0 --> 1F0 --> 2F0        a forward feeds the next stage's, a backward the previous stage's;
                     |         the last stage turns round by itself
    0B0 <-- 1B0 <-- 2B0

A stage here is a virtual stage: with one chunk a stage it is the stage of the mesh; else `placing` says on which stage
it lives. A micro-batch is numbered within the step, over all replicas.
Notation as in the schedule IR of torch.distributed.pipelining.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate

from raymega.errors import ConfigError

_ACTION = re.compile(r"(\d+)([FBIW])(\d+)")


class Kind(StrEnum):
    """Forward, backward; or the two parts of a backward, for the input, which others wait for, and for the weights."""

    F = "F"
    B = "B"
    I = "I"  # noqa: E741  the literature's letter
    W = "W"


WHOLE = (Kind.F, Kind.B)
"""The kinds of a step whose backwards are not split."""
SPLIT = (Kind.F, Kind.I, Kind.W)
"""The kinds of one whose backwards are."""


@dataclass(frozen=True, slots=True, order=True)
class Action:
    """One kind of work of one virtual stage on one micro-batch; also the fact that it was done."""

    stage: int
    kind: Kind
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


Program = tuple[Action, ...]
"""What one team runs in a step, in this order."""

Programs = Mapping[str, Program]
"""The program of each team, by the name that messages call it by."""


def parse(text: str) -> Action:
    """Read back what `str` of an action prints.

    Raises: ConfigError if `text` is no action.
    >>> parse("2F0")
    Action(stage=2, kind=<Kind.F: 'F'>, microbatch=0)
    """
    match = _ACTION.fullmatch(text)
    if match is None:
        raise ConfigError(f"{text!r} is no action. Write stage, one of F B I W, micro-batch: 2F0.", text=text)
    stage, kind, microbatch = match.groups()
    return Action(int(stage), Kind(kind), int(microbatch))


def parse_program(text: str) -> Program:
    """Read actions separated by blanks; the inverse of `show_program`."""
    return tuple(parse(word) for word in text.split())


def show_program(program: Program) -> str:
    """Print a program as one line: `2F0 2B0`."""
    return " ".join(map(str, program))


def source(action: Action, *, num_stages: int) -> Action | None:
    """The action whose output `action` takes in; None for the first forward, which reads the batch.

    Args:
        num_stages: virtual stages.
    """
    stage, microbatch = action.stage, action.microbatch
    if action.kind is Kind.F:
        return Action(stage - 1, Kind.F, microbatch) if stage > 0 else None
    if action.kind is Kind.W:
        return Action(stage, Kind.I, microbatch)
    return Action(stage + 1, action.kind, microbatch) if stage < num_stages - 1 else Action(stage, Kind.F, microbatch)


def sink(action: Action, *, num_stages: int) -> Action | None:
    """The action that takes in the output of `action`; None for the first stage's backward.

    The inverse of `source` where backwards are whole; of a split one, the parts for the weights take nobody's input.
    """
    stage, microbatch = action.stage, action.microbatch
    if action.kind is Kind.W:
        return None
    if action.kind is not Kind.F:
        return Action(stage - 1, action.kind, microbatch) if stage > 0 else None
    return Action(stage + 1, Kind.F, microbatch) if stage < num_stages - 1 else Action(stage, Kind.B, microbatch)


def work_of_step(*, num_stages: int, num_microbatches: int, kinds: tuple[Kind, ...] = WHOLE) -> frozenset[Action]:
    """All that a step has to do: every micro-batch once, in each kind, at every virtual stage."""
    return frozenset(
        Action(stage, kind, microbatch)
        for stage in range(num_stages)
        for kind in kinds
        for microbatch in range(num_microbatches)
    )


def last_passes(program: Program) -> tuple[tuple[int, int], ...]:
    """(stage, micro-batch) of each stage's last backward, or last part of one."""
    return tuple({action.stage: action.microbatch for action in program if action.kind is not Kind.F}.items())


def alive_after(program: Program) -> tuple[int, ...]:
    """How many activations a team holds after each action: forwards of which some part of the backward is to come."""
    change = {Kind.F: 1, Kind.B: -1, Kind.I: 0, Kind.W: -1}
    return tuple(accumulate(change[action.kind] for action in program))
