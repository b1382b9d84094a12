"""The GPipe schedule: all forwards, then all backwards.

    stage 0 | F0 F1 F2 F3             B0 B1 B2 B3
    stage 1 |    F0 F1 F2 F3       B0 B1 B2 B3
    stage 2 |       F0 F1 F2 F3 B0 B1 B2 B3

Every micro-batch of a stage is alive at once. Backwards run in the order of the forwards, as in 1F1B, so that both
schedules add the gradients up in the same order and give the same bits.
Forward and backward take one tick each. Source: Huang et al. 2019 (arXiv 1811.06965), section 2.3.
"""

from raymega.pipeline.actions import Action, Kind, Program


def gpipe(*, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program:
    """The program of one stage for its micro-batches, in ascending order; chunk after chunk, and back."""
    held = [chunk * num_stages + stage for chunk in range(chunks)]
    forwards = (Action(virtual_stage, Kind.F, m) for virtual_stage in held for m in microbatches)
    backwards = (Action(virtual_stage, Kind.B, m) for virtual_stage in reversed(held) for m in microbatches)
    return (*forwards, *backwards)


def gpipe_in_flight(*, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int:
    """The most activations alive on `stage`."""
    return num_microbatches * chunks
