"""Programs of one replica, named by stage, for the tests of this room."""

from raymega.pipeline.actions import Program, parse_program
from raymega.pipeline.catalog import schedule


def pipeline(name: str, *, num_stages: int, num_microbatches: int, chunks: int = 1) -> dict[str, Program]:
    microbatches = tuple(range(num_microbatches))
    return {
        f"stage {stage}": schedule(name).program(
            stage=stage, num_stages=num_stages, microbatches=microbatches, chunks=chunks
        )
        for stage in range(num_stages)
    }


def written(text: str) -> dict[str, Program]:
    """Programs written as lines `name | actions`."""
    rows = [line.partition("|") for line in text.strip().splitlines()]
    return {name.strip(): parse_program(actions) for name, _, actions in rows}
