"""Speaks with a run that another process started, through its controller's name.

LiveRun.find("demo")  --> actor raymega:demo     refused here: no such run, or one that is over
   .pause() .. ask    --> Controller.ask         the brain's answer
   .rewind(step)      --> Controller.rewind      the same
   .stop()            --> Controller.stop, wait  how it ended
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from raymega.config.fault import nearest
from raymega.control.commands import Answer
from raymega.control.events import (
    CheckpointAsked,
    DisturbAsked,
    DrainAsked,
    PauseAsked,
    ResizeAsked,
    ResumeAsked,
    SetAsked,
)
from raymega.driver.arguments import rate, seconds, whole, whole_or_none
from raymega.driver.cluster.drain import tell_ray
from raymega.driver.cluster.ray_session import NAMESPACE, why_gone
from raymega.driver.hands.asking import Wish
from raymega.driver.hands.trace_replay import Laid, Replay
from raymega.driver.launch import controller_name
from raymega.driver.news import Ended
from raymega.errors import ClusterError, ConfigError, RayGone, RaymegaError
from raymega.mesh import Mesh
from raymega.plan.cluster import NodeId

ANSWER_LIMIT_S = 60.0
LOOK_S = 2.0  # how often whoever waits for an answer looks whether there is still a Ray that can bring it
SOON_LIMIT_S, SOON_S = 60.0, 1.0  # of a wish that is refused for the moment
REPLACED_LIMIT_S, AGAIN_S = 60.0, 0.2  # of a controller that is gone: another takes its place within some seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run whose controller answers on this cluster. What people give it is refused here if it can be no number."""

    name: str
    actor: Any  # Any: Ray's actor handles have no type

    @classmethod
    def find(cls, name: str) -> "LiveRun":
        """The run of this name. Raises: ConfigError naming the nearest that is alive."""
        try:
            return cls(name=name, actor=ray.get_actor(controller_name(name), namespace=NAMESPACE))
        except ValueError as error:
            alive = runs_alive()
            near = nearest(name, alive)
            hint = f"Did you mean {near}?" if near else f"Alive on this cluster: {', '.join(alive) or 'none'}."
            raise ConfigError(f"run {name} is not alive on this cluster. {hint}", alive=alive) from error

    def pause(self, *, after_step: int | None = None) -> Answer:
        """Have the run stand at a boundary, or after a later step."""
        return self.ask(PauseAsked(request=0, after_step=whole_or_none(after_step, name="after_step")))

    def resume(self) -> Answer:
        """Have the run go on."""
        return self.ask(ResumeAsked(request=0))

    def step(self, steps: int) -> Answer:
        """Have the run go on for so many steps, and stand again."""
        return self.ask(ResumeAsked(request=0, steps=whole(steps, name="steps")), again=False)

    def set(self, *, lr: float) -> Answer:
        """Have the run train with another rate."""
        return self.ask(SetAsked(request=0, lr=rate(lr, name="lr")))

    def checkpoint(self) -> Answer:
        """Have the run save the first step that nobody has begun."""
        return self.ask(CheckpointAsked(request=0))

    def resize(self, *, devices: int | None = None, mesh: Mesh | None = None) -> Answer:
        """Have the run go on with so many devices, or as this mesh."""
        return self.ask(ResizeAsked(request=0, devices=whole_or_none(devices, name="devices"), mesh=mesh))

    def drain(self, node: NodeId, *, deadline_s: float, cause: str) -> tuple[Answer, str]:
        """Have the run leave `node`, and then let Ray place nothing more there.

        Returns:
            The run's answer; why Ray was not told, empty when it was.
        """
        by_t = time.time() + seconds(deadline_s, name="deadline_s")
        wish = DrainAsked(request=0, node=node, by_t=by_t, cause=cause)
        answer = self.ask(wish)
        return answer, tell_ray(wish, rows=ray.nodes()) if answer.accepted else "the run refuses"

    def rewind(self, step: int) -> Answer:
        """Have the run go back to the checkpoint of `step`, once it can: it may be between two plans, or publish one.

        Raises: StateError if it is not there, or not whole.
        """
        wanted, until = whole(step, name="step"), time.monotonic() + SOON_LIMIT_S
        while True:
            answer: Answer = self._told(lambda: self.actor.rewind.remote(wanted))
            if not answer.soon or time.monotonic() > until:
                return answer
            time.sleep(SOON_S)

    def chaos(
        self, orders: tuple[str, ...], *, replay: Replay | None = None, without: Mapping[int, int] | None = None
    ) -> Laid | None:
        """Have things go wrong on purpose; how a trace lies over the run, if it is replayed.

        Args:
            without: devices of each node, by its number, that the run does without from now on; of others, none.
        Raises: ConfigError if the run cannot carry all of it out; ClusterError if it is about to end.
        """
        is_any = orders or replay or without is not None
        if not is_any or not all(isinstance(order, str) for order in orders):
            raise ConfigError(f'{orders} are no orders; texts are wanted, as "kill stage=1 replica=0 step=40".')
        asked = DisturbAsked(request=0, orders=orders, without=None if without is None else _plain(without))
        laid: Laid | None = self._told(lambda: self.actor.chaos.remote(asked, replay), again=False)
        return laid

    def ask(self, wish: Wish, *, again: bool = True) -> Answer:
        """Put a wish to the run and wait for its answer. Raises: ClusterError if there is none.

        Args:
            again: where the controller goes before it has answered, whoever takes its place may be asked the same.
        """
        answer: Answer = self._told(lambda: self.actor.ask.remote(wish), again=again)
        return answer

    def is_ending(self) -> bool:
        """Is it on its way to its end? One that is gone meanwhile is; of one that does not answer nothing is known."""
        try:
            ending: bool = _got(self.actor.is_ending.remote(), limit_s=ANSWER_LIMIT_S)
        except (RayActorError, RayGone):
            return True
        except GetTimeoutError:
            return False
        return ending

    def stop(self, *, grace_s: float | None = None) -> Ended | None:
        """Ask the run to end at its next boundary and wait for that; None: it was over before it could say how."""
        limit_s = None if grace_s is None else seconds(grace_s, name="grace_s")
        until = time.monotonic() + REPLACED_LIMIT_S
        while True:
            try:
                _got(self.actor.stop.remote("user", limit_s))
                ended: Ended = _got(self.actor.wait.remote())
            except RayGone:
                return None  # its owner has ended it, and its Ray with it
            except RayActorError:
                if time.monotonic() > until or not self._is_known():
                    return None  # its owner took the controller away
                time.sleep(AGAIN_S)
            else:
                return ended

    def _told(self, ask: Callable[[], Any], *, again: bool = True) -> Any:  # Any: Ray's references have no types
        """What the controller answers, or the one that takes its place. Raises: what it raised; ClusterError."""
        until = time.monotonic() + REPLACED_LIMIT_S
        while True:
            try:
                return _got(ask(), limit_s=ANSWER_LIMIT_S)
            except RayTaskError as error:
                raise error.cause if isinstance(error.cause, RaymegaError) else error from None
            except GetTimeoutError as error:
                raise ClusterError(
                    f"run {self.name} has not answered for {ANSWER_LIMIT_S:.0f} s. See `raymega status {self.name}`."
                ) from error
            except RayActorError as error:
                if not again or time.monotonic() > until or not self._is_known():
                    raise ClusterError(
                        f"the controller of run {self.name} is gone, and with it the answer. See where the run stands "
                        "with `raymega status`, and ask again if it goes on."
                    ) from error
                time.sleep(AGAIN_S)

    def _is_known(self) -> bool:
        """Whether Ray has the controller, or starts it again."""
        if why_gone():
            return False
        try:
            ray.get_actor(controller_name(self.name), namespace=NAMESPACE)
        except ValueError:
            return False
        return True


def _got(call: Any, *, limit_s: float = math.inf) -> Any:  # Any: Ray's references have no types
    """What a call comes to. Raises: what it raised; GetTimeoutError; RayGone once no Ray can bring the answer."""
    waited_s = 0.0
    while True:
        try:
            return ray.get(call, timeout=LOOK_S)
        except GetTimeoutError:
            waited_s += LOOK_S
            if waited_s >= limit_s:
                raise
        why = why_gone()
        if why:
            raise RayGone(f"the Ray in which that run lived has ended, and with it the answer: {why}. See its status.")


def runs_alive() -> list[str]:
    """Runs that have a controller on this cluster."""
    prefix = controller_name("")
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [actor["name"].removeprefix(prefix) for actor in named if actor["namespace"] == NAMESPACE]
    return sorted(name for name in names if ":" not in name)


def _plain(without: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    """Devices of nodes, by number. Raises: ConfigError."""
    return tuple(
        (whole(node, name="without: node", least=0), whole(devices, name=f"without: devices of node {node}", least=0))
        for node, devices in without.items()
    )
