import pytest

from raymega.control.decision import Decision
from raymega.control.events import Event, NodesChanged, WorkerBorn, WorkerLost
from raymega.control.loop import Turn
from raymega.control.states import NodeDevices, first_state
from raymega.errors import StateError
from raymega.sim.node_trace import NodeTrace
from raymega.sim.own_faults import own_faults
from tests.sim.scenarios import config, scenario
from tests.sim.watching import watched

BEGAN_T = 1000.0
LEAVING = ((40.0, ("w2",)), (150.0, ("w0",)))


def turn(t_s: float, event: Event) -> Turn:
    state = first_state(epoch=1)
    return Turn(seq=1, t=BEGAN_T + t_s, before=state, event=event, decision=Decision(state=state))


def nodes(t_s: float, *devices: int) -> Turn:
    found = tuple(NodeDevices(node=f"n{i}", devices=many) for i, many in enumerate(devices))
    return turn(t_s, NodesChanged(nodes=found))


UP = tuple(turn(0.1, WorkerBorn(worker=worker)) for worker in ("w0", "w1"))


def lost(t_s: float, *, worker: str = "w0", silent_s: float = 0.0) -> Turn:
    return turn(t_s, WorkerLost(worker=worker, node="n0", cause="SIGKILL", silent_s=silent_s))


@pytest.mark.parametrize(
    ("turns", "rows"),
    [
        ((nodes(0.5, 4), nodes(9.0, 3), nodes(20.0, 4)), ((0.0, 0), (0.5, 4), (9.0, 3), (20.0, 4))),
        ((nodes(0.5, 4), lost(8.5, silent_s=0.25), nodes(9.0, 3)), ((0.0, 0), (0.5, 4), (8.25, 3))),
        ((nodes(0.5, 4), lost(8.0), lost(8.0, worker="w1"), nodes(9.0, 2)), ((0.0, 0), (0.5, 4), (8.0, 2))),
        ((nodes(0.5, 4), lost(8.0), nodes(60.0, 4)), ((0.0, 0), (0.5, 4), (8.0, 3), (8.001, 4))),
        (
            (nodes(0.5, 4), lost(8.0), lost(8.5, worker="w1"), nodes(9.0, 3)),
            ((0.0, 0), (0.5, 4), (8.0, 3), (8.5, 2), (8.501, 3)),
        ),
        ((nodes(0.5, 4), lost(8.0), lost(8.0, worker="w1")), ((0.0, 0), (0.5, 4), (8.0, 2), (8.001, 4))),
        ((nodes(0.0, 2, 2), nodes(5.0, 2)), ((0.0, 4), (5.0, 2))),
    ],
)
def test_a_journal_says_when_nodes_came_and_went(turns: tuple[Turn, ...], rows: tuple[tuple[float, int], ...]) -> None:
    assert own_faults((*UP, *turns), began_t=BEGAN_T).rows == tuple(pytest.approx(row) for row in rows)


def test_a_worker_that_was_never_up_is_not_taken_to_be_gone_since_it_was_ordered() -> None:
    turns = (nodes(0.5, 4), nodes(30.0, 3), lost(30.5, worker="w7", silent_s=12.0))
    found = own_faults(turns, began_t=BEGAN_T)
    assert found.rows == ((0.0, 0), (0.5, 4), (pytest.approx(29.5), 3))
    assert [workers for _, workers in found.leaving] == [("w7",)]


def test_nodes_of_several_devices_are_counted_as_such() -> None:
    found = own_faults(
        (*UP, nodes(0.0, 2, 2), lost(3.0), lost(3.0, worker="w1"), nodes(4.0, 2)), began_t=BEGAN_T, node_devices=2
    )
    assert found.rows == ((0.0, 2), (3.0, 1))
    assert found.leaving == ((3.0, ("w0", "w1")),)


def test_whose_nodes_went_goes_in_a_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = NodeTrace(rows=((0.0, 0), (0.5, 4), (40.0, 3), (90.0, 4), (150.0, 3)), end_s=200.0, leaving=LEAVING)
    lived = watched(scenario(config(dp=4, pp=1), trace=trace), monkeypatch)
    found = own_faults(lived.turns, began_t=0.0)
    assert found.leaving == tuple((pytest.approx(at_s), workers) for at_s, workers in LEAVING)
    assert found.rows == tuple(pytest.approx(row) for row in trace.rows)


def test_a_run_without_nodes_is_refused() -> None:
    with pytest.raises(StateError, match="never had a node"):
        own_faults([], began_t=BEGAN_T)
