"""A trace on a live run: whom it takes, what the run is told, and what it costs."""

import queue
from concurrent.futures import Future
from dataclasses import dataclass, field

import pytest

from raymega.control.commands import Answer, Rewind
from raymega.control.events import DisturbAsked, NodesChanged
from raymega.control.states import Seat
from raymega.driver.cluster.node_watch import without
from raymega.driver.hands.chaos import ChaosHands
from raymega.driver.hands.trace_replay import Laid, Replay, Replayer, Replays, laid_over
from raymega.errors import ConfigError
from raymega.sim.node_trace import NodeTrace
from raymega.sim.trace_course import Turnover
from tests.control.fake_hands import FakeHands, nodes
from tests.control.test_whole_runs import play, steps
from tests.waiting import eventually

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


COURSE = (Turnover(at_s=0.0, leaving=("n#0",), coming=()), Turnover(at_s=0.01, leaving=("n#1",), coming=("n#0",)))
PLACES = {"n#0": ("n", 1), "n#1": ("n", 1)}


def replayed(*answers: bool, course=COURSE) -> tuple[Replayer, queue.SimpleQueue[object]]:
    """A replay, and what it asks for."""
    asked, said = queue.SimpleQueue[object](), iter(answers)
    laid = Laid(course=course, devices_of=PLACES)
    return Replayer(laid, do_without=lambda found: asked.put(dict(found)) or next(said), failed=asked.put), asked


def test_what_leaves_is_asked_for_at_its_time_and_given_back_at_the_end():
    replayer, asked = replayed(True, True, True)
    assert [asked.get(timeout=10.0) for _ in range(3)] == [{"n": 1}, {"n": 1}, {}]
    replayer.close()


def test_a_replay_ends_with_its_run():
    replayer, asked = replayed(True, False)
    assert [asked.get(timeout=10.0) for _ in range(2)] == [{"n": 1}, {"n": 1}]
    replayer.close()
    assert asked.empty()


def test_a_replay_that_is_closed_gives_everything_back():
    replayer, asked = replayed(True, True, course=(*COURSE[:1], Turnover(at_s=3600.0, leaving=("n#1",), coming=())))
    assert asked.get(timeout=10.0) == {"n": 1}
    replayer.close()
    assert asked.get(timeout=10.0) == {}


@dataclass
class World:
    """Nodes and workers as the replays see them, and what was done to them, in order."""

    by_node: dict[str, int]
    seats: tuple[Seat, ...]
    done: list[object] = field(default_factory=list)

    def send(self, worker: str, order: str) -> None:
        self.done.append((order, worker))

    def withhold(self, devices) -> None:
        self.done.append(dict(devices))


def replays(world: World) -> Replays:
    answered = Future[Answer]()
    answered.set_result(Answer(request=1, accepted=True, reason=""))
    chaos = ChaosHands(world.done.append)
    assert [chaos.number_of(node) for node in ("b", "a")] == [0, 1]
    return Replays(world, world, ask=lambda event: world.done.append(event) or answered, chaos=chaos, failed=print)


def seat(worker: str, node: str, device: int) -> Seat:
    return Seat(worker=worker, node=node, device=device)


def test_a_trace_is_asked_of_the_brain_by_the_numbers_of_nodes():
    world = World({"a": 1, "b": 1}, ())
    laid = replays(world).begin(Replay(trace=NodeTrace(rows=((0.0, 2), (0.02, 1)), end_s=0.02), speed=1.0, least=1))
    (gone,) = laid.course[0].leaving
    eventually(lambda: len(world.done) == 2, limit_s=10.0)
    number = {"b": 0, "a": 1}[gone]
    assert world.done == [
        DisturbAsked(request=0, without=((number, 1),)), DisturbAsked(request=0, without=())
    ]  # fmt: skip


def test_whoever_sits_on_a_device_that_goes_dies_before_it_is_withheld():
    seats = (seat("w0", "a", 0), seat("w1", "a", 1), seat("w2", "b", 0))
    world = World({"a": 2, "b": 1}, seats)
    replays(world).do_without({1: 1})
    assert world.done == [("die", "w1"), {"a": 1}]


def test_a_node_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ConfigError, match=r"no node 4\. Its nodes are 0, 1"):
        replays(World({"a": 2, "b": 1}, ())).check([1, 4])


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
