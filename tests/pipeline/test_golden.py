"""Every schedule as a picture: four stages, eight micro-batches, each forward, input's and weights' part one unit."""

from pathlib import Path

import pytest

from raymega.pipeline.actions import Kind
from raymega.pipeline.catalog import schedule_names
from raymega.pipeline.timeline import Timeline, timeline
from tests.pipeline.pipelines import fitting_chunks, pipeline

PICTURES = Path(__file__).parents[1] / "golden" / "schedules"
UNITS = {Kind.F: 1.0, Kind.B: 2.0, Kind.I: 1.0, Kind.W: 1.0}
PUBLISHED = {  # units of the step; the longest span of a stage; activations alive on each stage
    "gpipe": (33, 33, (8, 8, 8, 8)),
    "1f1b": (33, 33, (4, 3, 2, 1)),
    "interleaved": (57, 57, (11, 9, 7, 5)),
    "zb-h1": (27, 27, (4, 4, 4, 4)),
    "zb-h2": (27, 24, (7, 7, 7, 7)),
    "zb-v": (51, 48, (8, 8, 8, 8)),
}


def run(name: str) -> Timeline:
    num_stages = 4 * fitting_chunks(name) if name != "gpipe" else 4
    return timeline(
        pipeline(name, num_stages=4, num_microbatches=8, chunks=num_stages // 4),
        durations={(stage, kind): UNITS[kind] for stage in range(num_stages) for kind in Kind},
        num_stages=num_stages,
    )


@pytest.mark.parametrize("name", schedule_names())
def test_units_spans_and_activations_are_the_published_ones(name: str) -> None:
    made = run(name)
    assert (made.total_s, made.longest_span_s, tuple(map(made.peak_alive, made.spans))) == PUBLISHED[name]


@pytest.mark.parametrize("name", schedule_names())
def test_the_picture_is_the_one_that_was_looked_at(name: str) -> None:
    assert run(name).draw(tick_s=1.0) + "\n" == (PICTURES / f"{name}.txt").read_text()
