import pytest

from raymega.sim.node_trace import NodeTrace, read_trace
from raymega.sim.simulate import simulate
from tests.sim.published_traces import SHAPES, TRACES, Shape, compared

needs_traces = pytest.mark.skipif(not TRACES.is_dir(), reason=f"the published traces are not at {TRACES}")


def published(name: str) -> NodeTrace:
    return read_trace((TRACES / f"oobleck_{name}.csv").read_text(), source=name)


@needs_traces
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.soak
def test_a_node_lost_every_ten_minutes_costs_less_than_a_twentieth(shape: Shape) -> None:
    done = simulate(compared(shape, published("synth_10m")))
    assert done.ended == ""
    assert done.effective_share >= max(0.95, shape.effective / 100)


@needs_traces
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
@pytest.mark.soak
def test_on_spot_nodes_nine_tenths_of_linear_are_kept(shape: Shape) -> None:
    done = simulate(compared(shape, published("scaled_p3")))
    assert done.ended == ""
    assert done.share_of_linear >= 0.9 > shape.of_linear / 100


@needs_traces
def test_the_first_losses_of_a_published_trace_cost_next_to_nothing() -> None:
    trace = published("synth_10m")
    first = NodeTrace(rows=tuple(row for row in trace.rows if row[0] < 1500), end_s=1500)
    assert simulate(compared(SHAPES[0], first)).effective_share >= 0.99
