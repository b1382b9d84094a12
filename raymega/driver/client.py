"""The client of a run: makes its controller, follows it, and passes on what the user wants.

    client ---- news(since) ----> controller        every answer renews the owner's lease
           <--- turns, end ------
           ---- stop(by) ------->                   Ctrl-C: at the next boundary, saved; a second one: at once
           ---- hand_over() ---->                   in a Ray job, after a SIGTERM: the end needs no client any more

The controller is an actor of its own, so that it does not hold up the client and the client does not hold up the run.
"""

import math
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from raymega.control.states import StopBy
from raymega.driver.cluster.node_watch import Row
from raymega.driver.cluster.ray_private import draining_nodes, ended_daemons, is_head
from raymega.driver.cluster.ray_session import NAMESPACE
from raymega.driver.controller import RemoteController
from raymega.driver.hands.worker_group import end_leftovers
from raymega.driver.launch import Launch, controller_name
from raymega.driver.news import Ended, News
from raymega.driver.records.lock import RunLock
from raymega.errors import ClusterError, ConfigError, RaymegaError
from raymega.plan.cluster import NodeId, is_spot

SAME_S = 0.2  # `timeout` sends a signal to a process and then to its group; fingers need longer for a second Ctrl-C
ASK_WAIT_S = 0.5  # how late a Ctrl-C may be passed on
END_LIMIT_S = 10.0
LEAVE_LIMIT_S = 15.0  # of a controller whose run is over: its owner's lease, with margin
RESTART_LIMIT_S, AGAIN_S = 60.0, 0.1  # of a controller: measured, about 5 s of a loaded machine
Wish = tuple[StopBy, float | None]  # who asks to stop, and the seconds of grace


class RunHandle:
    """A controller actor that this process owns."""

    def __init__(self, launch: Launch, actor: Any) -> None:  # Any: Ray's actor handles have no type
        self._launch, self._actor = launch, actor
        self._seq = 0

    @classmethod
    def begin(cls, launch: Launch) -> "RunHandle":
        """Start the run. Raises: ConfigError if a run of this name, or in this directory, is alive."""
        actor = _new_controller(launch)
        try:
            ray.get(actor.start.remote())
        except RayTaskError as error:
            ray.kill(actor)
            raise _ours(error) from error
        return cls(launch, actor)

    def news(self, *, wait_s: float = ASK_WAIT_S) -> News:
        """What has happened since the last call; waits up to `wait_s` for something.

        Raises: ClusterError if the controller is gone, or the Ray that this process has started for it.
        """
        self._refuse_without_ray()
        try:
            news: News = self._ask("news", self._seq, wait_s)
        except RayActorError as error:
            self._refuse_without_ray()
            raise ClusterError(
                f"the controller of run {self._launch.name} is gone: {str(error).splitlines()[0]} "
                "Its workers end too; start the run again to go on from its newest checkpoint."
            ) from error
        self._seq = news.turns[-1].seq if news.turns else self._seq
        return news

    def _refuse_without_ray(self) -> None:
        ended = " and ".join(ended_daemons())
        if ended:
            raise ClusterError(
                f"the local Ray of run {self._launch.name} has ended: its {ended} is gone, as after `ray stop`, or "
                "where the memory of the machine is used up. Start the run again to go on from its newest checkpoint."
            )

    def stop(self, wish: Wish) -> None:
        by, grace_s = wish
        with suppress(RayActorError):  # it is over: the next news say how
            self._ask("stop", by, grace_s)

    def hand_over(self) -> None:
        """Let the controller end the run, and itself, whether or not this process is there."""
        with suppress(RayActorError):
            self._ask("hand_over")

    def _ask(self, what: str, *arguments: object) -> Any:
        """Call the controller; while another one takes its place, wait for that."""
        until = time.monotonic() + RESTART_LIMIT_S
        while True:
            try:
                return ray.get(getattr(self._actor, what).remote(*arguments))
            except RayActorError as error:
                comes_back = not ended_daemons() and (isinstance(error, ActorUnavailableError) or self._is_known())
                if time.monotonic() > until or not comes_back:
                    raise
                time.sleep(AGAIN_S)

    def _is_known(self) -> bool:
        """Whether Ray still has the controller, or starts it again: a node's end looks like the actor's to a caller."""
        try:
            ray.get_actor(controller_name(self._launch.name), namespace=NAMESPACE)
        except ValueError:
            return False
        return True

    def close(self) -> None:
        """End the controller; a run that is not over ends with it. What it could not put away is put away here.

        Where the local Ray has ended there is nobody to ask: all of it is put away with that (`cluster.reaper`).
        """
        if ended_daemons():
            return
        with suppress(RayActorError):
            ray.get(self._actor.close.remote(), timeout=END_LIMIT_S)
        ray.kill(self._actor, no_restart=True)
        with suppress(RayActorError):  # which says that it is gone
            ray.get(self._actor.close.remote(), timeout=END_LIMIT_S)
        end_leftovers(self._launch.name)
        with suppress(ConfigError):  # another run has taken the directory
            RunLock.acquire(self._launch.run_dir.lock, controller="client").release()


def _new_controller(launch: Launch) -> Any:
    """An actor of the run's name; one whose run is over, or ends, keeps that until its owner has left it."""
    name, until = controller_name(launch.name), time.monotonic() + LEAVE_LIMIT_S
    options = {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}
    while True:
        try:
            return RemoteController.options(**options, scheduling_strategy=_beside_the_client(launch)).remote(launch)
        except ValueError as error:  # the name is taken
            if time.monotonic() > until or not _is_going(name):
                raise ConfigError(
                    f"run {launch.name} is alive on this cluster: its controller is {name}. "
                    "Stop it, or choose another run.name."
                ) from error
        time.sleep(AGAIN_S)


def _is_going(name: str) -> bool:
    """Is the run of that controller to end, or over?"""
    try:
        going: bool = ray.get(ray.get_actor(name, namespace=NAMESPACE).is_ending.remote())
    except (ValueError, RayActorError):
        return True
    return going


def _beside_the_client(launch: Launch) -> NodeAffinitySchedulingStrategy:
    """On this node, if it stays; a run without an owner may go elsewhere, and outlive it."""
    node = controller_node(ray.nodes(), here=ray.get_runtime_context().get_node_id(), draining=draining_nodes())
    return NodeAffinitySchedulingStrategy(node, soft=launch.owner_lease_s is None)


def controller_node(rows: Iterable[Row], *, here: NodeId, draining: Collection[NodeId]) -> NodeId:
    """Where a controller belongs: beside its client, or on a node that stays where that one may be taken back.

    Where all may be taken back, or are to go, it is beside its client; of others the head of the cluster comes first.
    """
    staying = [
        row for row in rows if row["Alive"] and row["NodeID"] not in draining and not is_spot(row.get("Labels", {}))
    ]
    if not staying or here in [row["NodeID"] for row in staying]:
        return here
    return str(min(staying, key=lambda row: (not is_head(row["Resources"]), row["NodeID"]))["NodeID"])


def follow(
    run: RunHandle, *, wishes: "Wishes", saw: Callable[[News], None], leaves_after_s: float | None = None
) -> Ended | None:
    """Tell `saw` of all that happens until the run has ended.

    Args:
        leaves_after_s: seconds from a SIGTERM until this process must be gone; None: as long as the run takes.
    Returns:
        How it ended; None: the time was over before, and the controller ends the run.
    """
    leave_t = math.inf
    while True:
        for wish in wishes.take():
            run.stop(wish)
            if wish[0] == "terminate" and leaves_after_s is not None:
                run.hand_over()
                leave_t = min(leave_t, wishes.newest_t + leaves_after_s)
        left_s = leave_t - time.monotonic()
        if left_s <= 0:
            return None
        news = run.news(wait_s=min(ASK_WAIT_S, left_s))
        saw(news)
        if news.ended is not None:
            return news.ended


class Wishes:
    """What signals ask for, until it is passed on. `newest_t`: when one came last, by the monotonic clock."""

    def __init__(self) -> None:
        self._wishes: list[Wish] = []
        self._newest: Wish | None = None
        self.newest_t = -math.inf

    def add(self, wish: Wish) -> None:
        """Note what a signal asks for; the same one at the same moment is that signal, sent twice."""
        now = time.monotonic()
        if wish != self._newest or now >= self.newest_t + SAME_S:
            self._wishes.append(wish)
        self._newest, self.newest_t = wish, now

    def take(self) -> list[Wish]:
        taken, self._wishes = self._wishes, []
        return taken


@contextmanager
def signals(*, term_grace_s: float | None) -> Iterator[Wishes]:
    """Turn Ctrl-C, SIGTERM and a lost terminal into wishes for the time of the block.

    A process that is not to hear of its terminal's end, as below `nohup`, does not.

    Args:
        term_grace_s: seconds that a run has to be saved after a SIGTERM; None: what a save takes.
    """
    wishes = Wishes()
    if threading.current_thread() is not threading.main_thread():
        yield wishes  # only the main thread gets signals; a notebook passes its wishes on by hand
        return

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        wishes.add(("interrupt", None))

    def on_terminate(number: int, frame: FrameType | None) -> None:
        wishes.add(("terminate", term_grace_s))

    def on_hangup(number: int, frame: FrameType | None) -> None:
        wishes.add(("hangup", term_grace_s))

    answers = {signal.SIGINT: on_interrupt, signal.SIGTERM: on_terminate}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        answers[signal.SIGHUP] = on_hangup
    before = {number: signal.signal(number, answer) for number, answer in answers.items()}
    try:
        yield wishes
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _ours(error: RayTaskError) -> BaseException:
    """What was raised in the actor, where it is an error of raymega's."""
    cause = error.cause
    return cause if isinstance(cause, RaymegaError) else error
