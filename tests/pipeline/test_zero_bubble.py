"""Bubble rates of table 5 of Qi et al. 2024 (arXiv 2401.10241) from the pass times of its table 9."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.pipeline import schedule_zb_v, schedule_zero_bubble
from raymega.pipeline.actions import SPLIT, Kind, Program, alive_after, work_of_step
from raymega.pipeline.check import faults
from raymega.pipeline.schedule_1f1b import one_f_one_b
from raymega.pipeline.schedule_zb_v import zb_v
from raymega.pipeline.schedule_zero_bubble import zb_h1, zb_h1_in_flight, zb_h2, zb_h2_in_flight
from raymega.pipeline.timeline import timeline

SCHEDULES = {"1f1b": one_f_one_b, "zb-h1": zb_h1, "zb-h2": zb_h2}
TABLES = (  # stages, micro-batches, ms of F, I, W, a message; bubble rates of 1F1B, ZB-H1, ZB-H2
    (8, 24, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1585, 0.1083),
    (8, 32, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.1242, 0.0837),
    (8, 64, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0674, 0.0444),
    (16, 48, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1397, 0.0672),
    (16, 64, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.1088, 0.0516),
    (16, 128, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0576, 0.0266),
)


def programs(name: str, *, num_stages: int, num_microbatches: int) -> dict[str, Program]:
    microbatches = tuple(range(num_microbatches))
    return {
        f"stage {stage}": SCHEDULES[name](stage=stage, num_stages=num_stages, microbatches=microbatches)
        for stage in range(num_stages)
    }


def bubble_rate(name: str, *, row: tuple[float, ...]) -> float:
    """The longest span of a stage beyond its work, over that span."""
    num_stages, num_microbatches = int(row[0]), int(row[1])
    forward, inputs, weights, message = row[2:6]
    seconds = {Kind.F: forward, Kind.B: inputs + weights, Kind.I: inputs, Kind.W: weights}
    found = timeline(
        programs(name, num_stages=num_stages, num_microbatches=num_microbatches),
        durations={(stage, kind): seconds[kind] for stage in range(num_stages) for kind in Kind},
        num_stages=num_stages,
        message_s=message,
    )
    return 1 - num_microbatches * (forward + inputs + weights) / found.longest_span_s


@pytest.mark.parametrize("row", TABLES, ids=lambda row: f"{row[0]} stages, {row[1]} micro-batches")
def test_published_bubble_rates_are_met_to_four_decimals(row: tuple[float, ...]) -> None:
    assert [round(bubble_rate(name, row=row), 4) for name in SCHEDULES] == list(row[6:])


@given(st.sampled_from(["zb-h1", "zb-h2"]), st.integers(1, 6), st.integers(1, 14))
@settings(max_examples=60, deadline=None)
def test_they_do_the_work_of_a_step_and_hold_what_they_promise(name: str, stages: int, microbatches: int) -> None:
    made = programs(name, num_stages=stages, num_microbatches=microbatches)
    work = work_of_step(num_stages=stages, num_microbatches=microbatches, kinds=SPLIT)
    limit = {"zb-h1": zb_h1_in_flight, "zb-h2": zb_h2_in_flight}[name]
    assert faults(made, num_stages=stages, work=work, receives_ahead=None) == ()
    for stage, program in enumerate(made.values()):
        assert max(alive_after(program)) <= limit(stage=stage, num_stages=stages, num_microbatches=microbatches)


def test_h1_is_drawn_as_in_its_description() -> None:
    made = programs("zb-h1", num_stages=3, num_microbatches=4)
    seconds = {(stage, kind): 1.0 for stage in range(3) for kind in Kind}
    for line in timeline(made, durations=seconds, num_stages=3).draw().splitlines():
        assert line in (schedule_zero_bubble.__doc__ or "")


def test_the_v_is_drawn_as_in_its_description() -> None:
    made = {
        f"stage {stage}": zb_v(stage=stage, num_stages=2, microbatches=(0, 1, 2, 3), chunks=2) for stage in range(2)
    }
    seconds = {(stage, kind): 1.0 for stage in range(4) for kind in Kind}
    for line in timeline(made, durations=seconds, num_stages=4).draw().splitlines():
        assert line in (schedule_zb_v.__doc__ or "")


@pytest.mark.parametrize("chunks", [1, 3])
def test_a_v_has_two_chunks(chunks: int) -> None:
    with pytest.raises(ConfigError, match=f"two chunks a stage, not {chunks}"):
        zb_v(stage=0, num_stages=2, microbatches=(0, 1), chunks=chunks)


def test_several_chunks_are_refused() -> None:
    with pytest.raises(ConfigError, match="run one chunk a stage, not 2"):
        zb_h1(stage=0, num_stages=2, microbatches=(0, 1), chunks=2)
