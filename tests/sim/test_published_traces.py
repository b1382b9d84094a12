from dataclasses import replace

import pytest

from raymega.sim.node_trace import NodeTrace, read_trace
from raymega.sim.simulate import simulate
from tests.sim.published_traces import SHAPES, TRACES, Shape, compared

pytestmark = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the published traces are not at {TRACES}")
ALL_TIMED = 10**9


def published(name: str) -> NodeTrace:
    return read_trace((TRACES / f"oobleck_{name}.csv").read_text(), source=name)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_node_lost_every_ten_minutes_costs_less_than_a_twentieth(shape: Shape) -> None:
    done = simulate(compared(shape, published("synth_10m")))
    assert done.ended == ""
    assert done.effective_share >= max(0.95, shape.effective / 100)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_on_spot_nodes_nine_tenths_of_linear_are_kept_as_far_as_is_counted_in_bulk(shape: Shape) -> None:
    done = simulate(compared(shape, published("scaled_p3")))
    assert (done.ended, done.seen.rewinds) == ("", 0)
    assert done.share_of_linear >= 0.9
    assert done.samples_per_s > shape.p3_samples_per_s


def test_where_both_holders_of_a_piece_of_state_go_and_nothing_is_saved_the_run_begins_anew() -> None:
    mirrored = {"parallelism.shard_optimizer": "mirrored"}
    done = simulate(compared(replace(SHAPES[-1], pp=3), published("scaled_p3"), changes=mirrored))
    assert done.seen.rewinds > 0
    assert "no checkpoint was published" in done.ended


@pytest.mark.soak
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_what_is_counted_in_bulk_is_what_the_clock_of_all_actions_says(shape: Shape) -> None:
    counted, timed = (
        simulate(compared(shape, published("synth_10m"), most_passes=most)).effective_share for most in (0, ALL_TIMED)
    )
    assert counted == pytest.approx(timed, abs=0.005)


def test_the_first_losses_of_a_published_trace_cost_next_to_nothing() -> None:
    trace = published("synth_10m")
    first = NodeTrace(rows=tuple(row for row in trace.rows if row[0] < 1500), end_s=1500)
    assert simulate(compared(SHAPES[0], first, most_passes=ALL_TIMED)).effective_share >= 0.99
