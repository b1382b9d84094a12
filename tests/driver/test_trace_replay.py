"""A trace on a live run: whom it takes, what the run is told, and what it costs."""

import queue

from raymega.control.commands import Rewind
from raymega.control.events import NodesChanged
from raymega.driver.node_watch import without
from raymega.driver.trace_replay import Laid, Replay, Replayer, laid_over
from raymega.sim.node_trace import NodeTrace
from raymega.sim.trace_course import Turnover
from tests.control.fake_hands import FakeHands, nodes
from tests.control.test_whole_runs import play, steps

TRACE = NodeTrace(rows=((0.0, 8), (20.0, 6), (40.0, 3), (60.0, 8), (70.0, 4), (90.0, 8)), end_s=90.0)


def test_where_a_run_has_one_node_a_trace_takes_its_last_devices():
    laid = laid_over({"head": 4}, Replay(trace=TRACE, speed=10.0, least=2))
    gone = {*laid.course[0].leaving, *laid.course[1].leaving}
    assert laid.withheld(gone) == {"head": 2}
    assert laid.lasts_s == 9.0


def test_where_a_run_has_more_nodes_a_trace_takes_whole_ones_and_leaves_devices_enough():
    laid = laid_over({"a": 2, "b": 2, "c": 2, "d": 2}, Replay(trace=TRACE, speed=10.0, least=3))
    assert {node for turn in laid.course for node in turn.leaving} <= {"a", "b", "c", "d"}
    most_gone = [len(turn.leaving) for turn in laid.course[:2]]
    assert sum(most_gone) == 2
    assert all(number == 2 for number in laid.withheld(laid.course[0].leaving).values())


def test_who_leaves_is_killed_and_withheld_and_given_back_at_the_end():
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    course = (Turnover(at_s=0.0, leaving=("n#0",), coming=()), Turnover(at_s=0.01, leaving=("n#1",), coming=("n#0",)))
    laid = Laid(course=course, devices_of={"n#0": ("n", 1), "n#1": ("n", 1)})
    replayer = Replayer(
        laid, withhold=lambda found: told.put(dict(found)),
        workers_beyond=lambda withheld: ["w3"] if withheld else [], kill=told.put, failed=told.put,
    )  # fmt: skip
    assert [told.get(timeout=10.0) for _ in range(5)] == ["w3", {"n": 1}, "w3", {"n": 1}, {}]
    replayer.close()


def test_a_replay_that_is_closed_gives_everything_back():
    told: queue.SimpleQueue[object] = queue.SimpleQueue()
    laid = Laid(course=(Turnover(at_s=3600.0, leaving=("n",), coming=()),), devices_of={"n": ("n", 1)})
    replayer = Replayer(laid, withhold=told.put, workers_beyond=lambda _: [], kill=told.put, failed=told.put)
    replayer.close()
    assert told.get(timeout=10.0) == {}


def test_a_node_is_gone_with_the_last_of_its_devices():
    left = without(nodes(2, 1), withheld={"n0": 1, "n1": 1})
    assert [(node.node, node.devices) for node in left] == [("n0", 1)]


def test_a_run_through_a_trace_commits_every_step_once():
    hands = FakeHands(nodes=nodes(1, 1, 1, 1), work=True, step_s=0.5)
    there = {f"n{number}" for number in range(4)}
    laid = laid_over(dict.fromkeys(there, 1), Replay(trace=TRACE, speed=10.0, least=2, seed=1))
    for turn in laid.course:
        there = (there - set(turn.leaving)) | set(turn.coming)
        alive = tuple(node for node in nodes(1, 1, 1, 1) if node.node in there)
        hands.tell(2.0 + turn.at_s, NodesChanged(nodes=alive))
    last, _ = play(hands)
    assert (last.exit_code, steps(hands)) == (0, list(range(1, 21)))
    assert last.story.steps_lost <= 5 * sum(isinstance(command, Rewind) for command in hands.commands)
