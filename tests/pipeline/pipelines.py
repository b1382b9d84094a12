"""Programs of one replica, named by stage, for the tests of this room."""

from raymega.pipeline.actions import Program, parse_program
from raymega.pipeline.catalog import schedule
from raymega.pipeline.schedule_file import Rows


def pipeline(
    name: str, *, num_stages: int, num_microbatches: int, chunks: int = 1, rows: Rows = ()
) -> dict[str, Program]:
    microbatches = tuple(range(num_microbatches))
    return {
        f"stage {stage}": schedule(name, rows=rows).program(
            stage=stage, num_stages=num_stages, microbatches=microbatches, chunks=chunks
        )
        for stage in range(num_stages)
    }


def fitting_chunks(name: str) -> int:
    """A number of chunks a stage that the schedule runs."""
    return schedule(name).chunks or 2


def written(text: str) -> dict[str, Program]:
    """Programs written as lines `name | actions`."""
    rows = [line.partition("|") for line in text.strip().splitlines()]
    return {name.strip(): parse_program(actions) for name, _, actions in rows}
