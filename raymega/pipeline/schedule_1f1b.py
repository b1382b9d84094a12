"""The 1F1B schedule: at most `num_stages - stage` activations alive on a stage.

    stage 0 | F0 F1 F2 F3          B0 F4 B1 F5 B2    B3    B4    B5
    stage 1 |    F0 F1 F2       B0 F3 B1 F4 B2 F5 B3    B4    B5
    stage 2 |       F0 F1    B0 F2 B1 F3 B2 F4 B3 F5 B4    B5
    stage 3 |          F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5

    warm-up     num_stages - stage - 1 forwards, until the first gradient can be on its way back
    steady      one forward, one backward, in turn
    cool-down   the backwards that are left

Forward and backward take one tick each. Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.1.
"""

from raymega.errors import ConfigError
from raymega.pipeline.actions import Action, Kind, Program


def one_f_one_b(*, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program:
    """The program of one stage for its micro-batches, in ascending order; any number of them.

    Raises: ConfigError if a stage has several chunks.
    """
    if chunks > 1:
        raise ConfigError(
            f"Schedule 1f1b runs one chunk a stage, not {chunks}. Set schedule to interleaved, or chunks to 1.",
            chunks=chunks,
        )
    forwards = [Action(stage, Kind.F, m) for m in microbatches]
    backwards = [Action(stage, Kind.B, m) for m in microbatches]
    warm_up = min(num_stages - stage - 1, len(microbatches))
    steady = len(microbatches) - warm_up
    in_turn = [action for pair in zip(forwards[warm_up:], backwards[:steady], strict=True) for action in pair]
    return (*forwards[:warm_up], *in_turn, *backwards[steady:])


def one_f_one_b_in_flight(*, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int:
    """The most activations alive on `stage`."""
    return min(num_stages - stage, num_microbatches)
