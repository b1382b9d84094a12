"""Speaks with a run that another process started, through its controller's name.

LiveRun.find("demo")  --> actor raymega:demo     refused here: no such run, or one that is over
   .ask(wish)         --> Controller.ask         the brain's answer
   .rewind(step)      --> Controller.rewind      the same
   .stop()            --> Controller.stop, wait  how it ended
"""

import time
from dataclasses import dataclass
from typing import Any

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError

from raymega.config.fault import nearest
from raymega.control.commands import Answer
from raymega.control.events import DrainAsked, ResizeAsked
from raymega.driver.asking import Wish
from raymega.driver.drain import tell_ray
from raymega.driver.launch import controller_name
from raymega.driver.news import Ended
from raymega.driver.ray_session import NAMESPACE
from raymega.driver.trace_replay import Laid, Replay
from raymega.errors import ClusterError, ConfigError, RaymegaError
from raymega.mesh import Mesh
from raymega.plan.cluster import NodeId

ANSWER_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run whose controller answers on this cluster."""

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

    def resize(self, *, devices: int | None = None, mesh: Mesh | None = None) -> Answer:
        """Have the run go on with so many devices, or as this mesh."""
        return self.ask(ResizeAsked(request=0, devices=devices, mesh=mesh))

    def drain(self, node: NodeId, *, deadline_s: float, cause: str) -> tuple[Answer, str]:
        """Have the run leave `node`, and then let Ray place nothing more there.

        Returns:
            The run's answer; why Ray was not told, empty when it was.
        """
        wish = DrainAsked(request=0, node=node, by_t=time.time() + deadline_s, cause=cause)
        answer = self.ask(wish)
        return answer, tell_ray(wish, rows=ray.nodes()) if answer.accepted else "the run refuses"

    def ask(self, wish: Wish) -> Answer:
        """Put a wish to the run and wait for its answer. Raises: ClusterError if there is none."""
        return self._answer(self.actor.ask.remote(wish))

    def rewind(self, step: int) -> Answer:
        """Have the run go back to the checkpoint of `step`. Raises: StateError if it is not there, or not whole."""
        return self._answer(self.actor.rewind.remote(step))

    def _answer(self, asked: Any) -> Answer:  # Any: a reference of Ray's has no type
        try:
            answer: Answer = ray.get(asked, timeout=ANSWER_LIMIT_S)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, RaymegaError) else error from None
        except GetTimeoutError as error:
            raise ClusterError(
                f"run {self.name} has not answered for {ANSWER_LIMIT_S:.0f} s. See `raymega status {self.name}`."
            ) from error
        except RayActorError as error:
            raise ClusterError(f"the controller of run {self.name} is gone. Ask again, if the run goes on.") from error
        return answer

    def is_ending(self) -> bool:
        """Is it on its way to its end? One that is gone meanwhile is."""
        try:
            ending: bool = ray.get(self.actor.is_ending.remote(), timeout=ANSWER_LIMIT_S)
        except RayActorError:
            return True
        return ending

    def chaos(self, orders: tuple[str, ...], *, replay: Replay | None = None) -> Laid | None:
        """Have things go wrong on purpose; how a trace lies over the run, if it is replayed.

        Raises: ConfigError if the run cannot carry all of them out; ClusterError if it is about to end.
        """
        try:
            laid: Laid | None = ray.get(self.actor.chaos.remote(orders, replay), timeout=ANSWER_LIMIT_S)
        except RayTaskError as error:
            raise error.cause if isinstance(error.cause, RaymegaError) else error from None
        except RayActorError as error:
            raise ClusterError(f"the controller of run {self.name} is gone. Ask again, if the run goes on.") from error
        return laid

    def stop(self, *, grace_s: float | None = None) -> Ended | None:
        """Ask the run to end at its next boundary and wait for that; None: it was over before it could say how."""
        try:
            ray.get(self.actor.stop.remote("user", grace_s))
            ended: Ended = ray.get(self.actor.wait.remote())
        except RayActorError:  # its owner took the controller away
            return None
        return ended


def runs_alive() -> list[str]:
    """Runs that have a controller on this cluster."""
    prefix = controller_name("")
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [actor["name"].removeprefix(prefix) for actor in named if actor["namespace"] == NAMESPACE]
    return sorted(name for name in names if ":" not in name)
