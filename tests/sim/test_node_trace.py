import pytest
from hypothesis import given
from hypothesis import strategies as st

from raymega.errors import ConfigError
from raymega.sim.node_trace import duration_s, failing, read_trace


def test_a_trace_holds_its_number_of_nodes_until_the_next_row() -> None:
    trace = read_trace("t_s,n_nodes\n0,30\n600,20\n1200,20\n", source="x")
    assert trace.end_s == 1200
    assert (trace.most, trace.average, trace.changes) == (30, 25.0, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("t_s,n_nodes\n0,3\n60,2\n30,3\n", "line 4: 30 s comes after 60 s"),
        ("0,3\n60,2\n", "begins with '0,3'"),
        ("t_s,n_nodes\n5,3\n60,2\n", "begins at 0 s"),
        ("t_s,n_nodes\n0,3\n60,two\n", "line 3: '60,two'"),
        ("t_s,n_nodes\n0,3\n60,-1\n", "line 3: '60,-1'"),
        ("t_s,n_nodes\n0,0\n60,0\n", "no node at any time"),
        ("t_s,n_nodes\n0,3\nnan,3\n", "line 3: 'nan,3'"),
        ("t_s,n_nodes\n0,3\ninf,3\n", "line 3: 'inf,3'"),
        ("t_s,n_nodes\n0,99999999\n60,2\n", "up to .* 100,000 nodes"),
        ("", "begins with nothing"),
        (f"t_s,n_nodes\n0,3\n60,{'9' * 5000}\n", "^.{,150}$"),
    ],
)
def test_a_trace_that_is_wrong_is_refused_with_its_line(text: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        read_trace(text, source="spot.csv")


@pytest.mark.parametrize(("word", "seconds"), [("90", 90), ("10m", 600), ("1.5h", 5400), ("7d", 604800)])
def test_times_are_read_with_their_units(word: str, seconds: float) -> None:
    assert duration_s(word, option="--mtbf") == seconds


@pytest.mark.parametrize("word", ["", "soon", "-3m", "0s", "1y", "99999999w"])
def test_a_time_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(ConfigError, match="--mtbf"):
        duration_s(word, option="--mtbf")


def test_more_failures_than_can_be_simulated_are_refused() -> None:
    with pytest.raises(ConfigError, match="6,000,000 failures in 600 s; up to 100,000"):
        failing(nodes=4, mtbf_s=1e-4, duration_s=600, back_after_s=60, seed=0)


@given(st.integers(1, 40), st.floats(30, 5000), st.integers(0, 99))
def test_drawn_failures_never_leave_more_nodes_than_there_were_nor_fewer_than_none(
    nodes: int, mtbf_s: float, seed: int
) -> None:
    trace = failing(nodes=nodes, mtbf_s=mtbf_s, duration_s=20_000, back_after_s=900, seed=seed)
    assert all(0 <= many <= nodes for _, many in trace.rows)
    assert [t for t, _ in trace.rows] == sorted(t for t, _ in trace.rows)


def test_failures_come_as_often_as_asked_for() -> None:
    trace = failing(nodes=1000, mtbf_s=600, duration_s=6_000_000, back_after_s=None, seed=1)
    assert len(trace.rows) - 1 == pytest.approx(10_000, rel=0.03)
