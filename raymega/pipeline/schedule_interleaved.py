"""The interleaved 1F1B schedule: a stage holds several chunks, so that the pipeline fills and drains in smaller steps.

    stage 0 | 0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1     2B2     2B3 0B2 0B3
    stage 1 |     1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3

    groups      the micro-batches pass in groups of num_stages; a stage runs a group through its first chunk, then
                through its next, so that each output meets a stage that has just become free
    remainder   shared out over the groups: 10 micro-batches on 4 stages pass as 5 + 5, so that any number is as fast
    warm-up     (chunks - 1) * group + 2 * (num_stages - stage - 1) forwards; then steady and cool-down, as in 1F1B

Virtual stage v is chunk v // num_stages of stage v % num_stages. Forward and backward of a chunk take one tick each.
The bubble is that of 1F1B divided by the number of chunks, for as many times more messages.
Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.2, where num_stages divides the micro-batches.
"""

from collections.abc import Iterator

from raymega.pipeline.actions import Action, Kind, Program


def interleaved(*, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 1) -> Program:
    """The program of one stage for its micro-batches, in ascending order; any number of them."""
    turns = list(_turns(microbatches, num_stages=num_stages, chunks=chunks))
    forwards = [Action(chunk * num_stages + stage, Kind.F, m) for chunk, m in turns]
    backwards = [Action((chunks - 1 - chunk) * num_stages + stage, Kind.B, m) for chunk, m in turns]
    warm_up = min(_warm_up(stage, num_stages, len(microbatches), chunks), len(turns))
    steady = len(turns) - warm_up
    in_turn = [action for pair in zip(forwards[warm_up:], backwards[:steady], strict=True) for action in pair]
    return (*forwards[:warm_up], *in_turn, *backwards[steady:])


def interleaved_in_flight(*, stage: int, num_stages: int, num_microbatches: int, chunks: int = 1) -> int:
    """The most activations alive on `stage`; each is that of one chunk."""
    return min(_warm_up(stage, num_stages, num_microbatches, chunks) + 1, num_microbatches * chunks)


def group_sizes(*, num_microbatches: int, num_stages: int) -> tuple[int, ...]:
    """Micro-batches of each group: num_stages, and the remainder one by one to the first groups.

    >>> group_sizes(num_microbatches=10, num_stages=4)
    (5, 5)
    """
    groups = max(1, num_microbatches // num_stages)
    return tuple(num_microbatches // groups + (group < num_microbatches % groups) for group in range(groups))


def _warm_up(stage: int, num_stages: int, num_microbatches: int, chunks: int) -> int:
    """Forwards before the first backward. The first group is the largest, so its size suffices for all."""
    group = group_sizes(num_microbatches=num_microbatches, num_stages=num_stages)[0]
    return (chunks - 1) * group + 2 * (num_stages - stage - 1)


def _turns(microbatches: tuple[int, ...], *, num_stages: int, chunks: int) -> Iterator[tuple[int, int]]:
    """(chunk, micro-batch) in the order of the forwards; backwards take the chunks the other way round."""
    at = 0
    for size in group_sizes(num_microbatches=len(microbatches), num_stages=num_stages):
        for chunk in range(chunks):
            for microbatch in microbatches[at : at + size]:
                yield chunk, microbatch
        at += size
