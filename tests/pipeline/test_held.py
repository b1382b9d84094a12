"""Passes that a program holds at once."""

import pytest

from raymega.pipeline.actions import parse_program
from raymega.pipeline.catalog import schedule, schedule_names
from raymega.pipeline.held import most_held


def test_open_and_owed_passes_are_told_apart() -> None:
    assert most_held(parse_program("0F0 0F1 0I0 0F2 0W0 0I1 0I2 0W1 0W2")) == ((0, 2), (2, 1))


@pytest.mark.parametrize("name", schedule_names())
@pytest.mark.parametrize("stage", range(4))
def test_together_they_are_what_the_schedule_says_is_alive(name: str, stage: int) -> None:
    row = schedule(name)
    chunks = row.chunks or 2
    program = row.program(stage=stage, num_stages=4, microbatches=tuple(range(8)), chunks=chunks)
    held = most_held(program)
    bound = row.in_flight(stage=stage, num_stages=4, num_microbatches=8, chunks=chunks)
    assert max(map(sum, held)) <= bound
    assert row.splits == any(owed for _, owed in held)
