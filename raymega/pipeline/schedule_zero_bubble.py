"""Zero bubble schedules: a backward is split, and its part for the weights fills the gaps.

    stage 0 | F0 F1 F2       I0 W0 F3 I1 W1 I2 W2 I3 W3         ZB-H1
    stage 1 |    F0 F1    I0 F2 I1 W0 F3 I2 W1 I3 W2 W3
    stage 2 |       F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3

    I   the gradient of the stage's input: the stage before waits for it        at once
    W   the gradients of its weights: nobody waits for them                     stage s is s of them behind (H1), or 2 s

    schedule   forwards first         alive on a stage    span of a stage with equal passes
    ZB-H1      p - s - 1              p                   as 1F1B, with a third of its bubble
    ZB-H2      2 (p - s - 1)          2 p - 1             no bubble, if the update of stage s need not wait for others'

Source: Qi et al. 2024, Zero Bubble Pipeline Parallelism (arXiv 2401.10241), sections 2.1 and 2.2.
"""

from raymega.errors import ConfigError
from raymega.pipeline.actions import Action, Kind, Program


def zb_h1(*, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program:
    """The program of one stage for its micro-batches, in ascending order; any number of them."""
    return _split(stage, microbatches, warm_up=num_stages - stage - 1, behind=stage, chunks=chunks)


def zb_h2(*, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program:
    """The same with twice the forwards ahead and twice the activations."""
    return _split(stage, microbatches, warm_up=2 * (num_stages - stage - 1), behind=2 * stage, chunks=chunks)


def zb_h1_in_flight(*, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int:
    """The most activations alive on `stage`."""
    return min(num_stages, num_microbatches)


def zb_h2_in_flight(*, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int:
    """The most activations alive on `stage`."""
    return min(2 * num_stages - 1, num_microbatches)


def _split(stage: int, microbatches: tuple[int, ...], *, warm_up: int, behind: int, chunks: int) -> Program:
    """Forwards ahead, then in turn F, I and the W that is `behind`; at the end the W that are left."""
    if chunks > 1:
        raise ConfigError(f"Zero bubble H1 and H2 run one chunk a stage, not {chunks}. Set chunks to 1.", chunks=chunks)
    forwards = [Action(stage, Kind.F, m) for m in microbatches]
    inputs = [Action(stage, Kind.I, m) for m in microbatches]
    weights = [Action(stage, Kind.W, m) for m in microbatches]
    program = forwards[:warm_up]
    for turn, gradient in enumerate(inputs):
        program += [*forwards[warm_up + turn : warm_up + turn + 1], gradient]
        program += weights[turn - behind : turn - behind + 1] if turn >= behind else []
    return (*program, *weights[max(0, len(microbatches) - behind) :])
