"""The ZB-V schedule: two chunks a stage, folded to a V, and backwards in two parts; no bubble but the first forwards.

    stage 0 | 0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0F3 0I0 0W0 3F2 3I2 3W2 0I1 0W1 3F3 3I3 3W3 0I2 0W2 0I3 0W3
    stage 1 |     1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1F3 1I1 1W1 2F3 2I2 2W2 1I2 2I3 1I3 1W2 2W3 1W3

    forwards   2 (p - stage) - 1 down, then one down and one up for each stage before this one
    warm-up    p - stage times: forward up, and its backward, both parts
    steady     forward down, backward of it, forward up, backward of it
    cool-down  inputs' parts first, as others wait for them; the weights' fill what they leave

A pass is that of one chunk, half a stage's layers. At most 2 p of them are alive on a stage, the memory of 1F1B.
Source: Qi et al. 2024 (arXiv 2401.10241), section 6, and its authors' implementation.
"""

from raymega.errors import ConfigError
from raymega.pipeline.actions import Action, Kind, Program


def zb_v(*, stage: int, num_stages: int, microbatches: tuple[int, ...], chunks: int = 2) -> Program:
    """The program of one stage for its micro-batches, in ascending order; any number of them.

    Raises: ConfigError if a stage has not two chunks.
    """
    if chunks != 2:
        raise ConfigError(f"Schedule zb-v runs two chunks a stage, not {chunks}. Set chunks to 2.", chunks=chunks)
    turns = _turns(stage, num_stages=num_stages, count=max(2 * num_stages - 1, len(microbatches)))
    down, up = stage, 2 * num_stages - 1 - stage
    return tuple(
        Action((down, up)[chunk], kind, microbatches[turn]) for chunk, kind, turn in turns if turn < len(microbatches)
    )


def zb_v_in_flight(*, stage: int, num_stages: int, num_microbatches: int, chunks: int = 2) -> int:
    """The most activations alive on `stage`; each is that of one chunk."""
    return min(2 * num_stages, 2 * num_microbatches)


def _turns(stage: int, *, num_stages: int, count: int) -> list[tuple[int, Kind, int]]:
    """(0 down or 1 up, kind, n-th micro-batch), for enough micro-batches to fill the pipeline."""
    made: list[tuple[int, Kind, int]] = []
    done = {(chunk, kind): 0 for chunk in (0, 1) for kind in (Kind.F, Kind.I, Kind.W)}

    def run(chunk: int, *kinds: Kind) -> None:
        for kind in kinds:
            made.append((chunk, kind, done[chunk, kind]))
            done[chunk, kind] += 1

    for _ in range(2 * (num_stages - stage) - 1):
        run(0, Kind.F)
    for _ in range(stage):
        run(1, Kind.F)
        run(0, Kind.F)
    for _ in range(num_stages - stage):
        run(1, Kind.F, Kind.I, Kind.W)
    while done[1, Kind.F] < count:
        if done[0, Kind.F] < count:
            run(0, Kind.F)
        run(0, Kind.I, Kind.W)
        run(1, Kind.F, Kind.I, Kind.W)
    for _ in range(stage):
        run(0, Kind.I)
        run(1, Kind.I)
    for _ in range(num_stages - stage):
        run(0, Kind.I, Kind.W)
    for chunk in (1, 0):
        for _ in range(count - done[chunk, Kind.W]):
            run(chunk, Kind.W)
    return made
