"""The controller of a run: the brain's loop in a thread, and what people and faces ask of it.

    Launch --> Controller.start     journal, sinks, hands; the loop begins
               Controller.take_over the same, in the place of one that is gone
               Controller.news      turns since n, and the end once there is one; renews the owner's lease
               Controller.stop      a stop is asked for
               Controller.ask       another size, or to be off a node: the brain's answer
               Controller.rewind    to go back to a checkpoint that is kept: the same
               Controller.hand_over its owner goes on purpose, and the run is to be ended without it

It runs in an actor of its own, `raymega:NAME`, or in the process that made it. A foreground run has an owner: when
its news are not asked for any more, the run ends cleanly, and then the actor ends itself. An owner that has little
time, as the entry point of a Ray job that is stopped, hands the run over instead: then its end takes what it takes.
"""

import os
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from shlex import quote

import ray

from raymega.control.brain import brain_of
from raymega.control.commands import Answer
from raymega.control.events import DisturbAsked, StopAsked
from raymega.control.loop import run
from raymega.control.policy import Rules
from raymega.control.sharing import Claim
from raymega.control.states import Failed, Finished, StopBy
from raymega.driver.beginning import Beginning, begin, take_over
from raymega.driver.cluster.ray_session import ray_here
from raymega.driver.going_on import back_to
from raymega.driver.hands.asking import OVER, Wish
from raymega.driver.hands.chaos import check_orders
from raymega.driver.hands.place import Place
from raymega.driver.hands.publishing import Publisher
from raymega.driver.hands.ray_runtime import RayRuntime
from raymega.driver.hands.trace_replay import Laid, Replay
from raymega.driver.hands.worker_group import end_leftovers
from raymega.driver.launch import Launch, controller_name
from raymega.driver.news import Ended, News, Told
from raymega.driver.process.by_name import named
from raymega.driver.process.threads import start_thread
from raymega.driver.records.lock import RunLock
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.records.steps import all_steps
from raymega.driver.watchers import watchers
from raymega.errors import ClusterError, RaymegaBug, RaymegaError, Superseded

SILENT_S = 2.0  # an owner asks every half second
GONE_GRACE_S = 20.0  # for a save after the owner is gone
HANDS_LIMIT_S = 30.0  # half of what is waited for an answer


class Controller:
    """One run, from its first worker to the last."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._told = Told()
        self._runtime: RayRuntime | None = None
        self._taking_hands, self._has_hands = threading.Lock(), threading.Event()
        self._early: list[StopAsked] = []  # what was asked before there were hands to tell
        self._asked_at = time.monotonic()
        self._has_left, self._superseded = threading.Event(), False
        self._handed_over, self._stop_asked = threading.Event(), threading.Event()

    def start(self) -> None:
        """Begin, in threads. Raises: ConfigError if another run is alive in the directory."""
        lock = self._take(RunLock.acquire)
        end_leftovers(self._launch.name)
        self._be_alive(lock, begin)

    def take_over(self) -> None:
        """Go on, in threads, in the place of a controller of the same launch that is gone, or decides no more.

        Raises: ConfigError if by now another run is alive in the directory.
        """
        self._be_alive(self._take(RunLock.inherit), take_over)

    def _take(self, take: Callable[..., RunLock]) -> RunLock:
        launch = self._launch
        return take(
            launch.run_dir.lock, controller=controller_name(launch.name), ray=ray_here(), heir_of=launch.heir_of
        )

    def _be_alive(self, lock: RunLock, begins: Callable[..., Beginning]) -> None:
        start_thread(lambda: self._live(lock, begins), name="controller", failed=self._broke)
        lease_s = self._launch.owner_lease_s
        if lease_s is not None:
            start_thread(lambda: self._mind_owner(lease_s), name="owner-lease", failed=self._broke)

    def news(self, since: int, wait_s: float) -> News:
        """Turns after number `since`, as soon as there are any; renews the owner's lease."""
        self._asked_at = time.monotonic()
        news = self._told.since(since, wait_s=wait_s)
        self._asked_at = time.monotonic()
        return replace(news, memory_bytes=self._runtime.memory_bytes) if self._runtime is not None else news

    def stop(self, by: StopBy, grace_s: float | None) -> None:
        """Ask the run to end; a second time at once."""
        event = StopAsked(by=by, grace_s=grace_s)
        self._stop_asked.set()
        with self._taking_hands:
            if self._runtime is None:
                self._early.append(event)
            else:
                self._runtime.tell(event)

    def hand_over(self) -> None:
        """Be without an owner from now on: end the run as it was asked to, and then this process."""
        self._handed_over.set()

    def is_ending(self) -> bool:
        """Is the run to end: was it asked to, or is its owner silent? Then it is to be waited for, not refused."""
        owned, silent_s = self._launch.owner_lease_s is not None, time.monotonic() - self._asked_at
        return self._stop_asked.is_set() or self._told.ended is not None or (owned and silent_s > SILENT_S)

    def ask(self, wish: Wish) -> Answer:
        """Put `wish` before the brain, once there are hands, and wait for its answer."""
        self._has_hands.wait(HANDS_LIMIT_S)
        if self._told.ended is not None or self._runtime is None:
            reason = OVER if self._told.ended is not None else "the run is only just starting"
            return Answer(request=wish.request or 0, accepted=False, reason=reason)
        return self._runtime.desk.ask(wish).result()

    def rewind(self, step: int) -> Answer:
        """Ask to go back to the checkpoint of `step`. Raises: StateError if it is not there, or not whole."""
        launch = self._launch
        return self.ask(back_to(step, config=launch.config, directory=launch.checkpoint_dir))

    def claim(self) -> Claim | None:
        """What the run asks of the cluster beside others; None before it begins, and once it is over."""
        return self._runtime.sizes.claim() if self._runtime is not None and self._told.ended is None else None

    def chaos(self, asked: DisturbAsked, replay: Replay | None = None) -> Laid | None:
        """Have things go wrong on purpose; how a trace lies over the run, if it is replayed.

        Raises: ConfigError if the run cannot carry all of it out; ClusterError if it is about to end.
        """
        check_orders(asked.orders, config=self._launch.config)
        if asked.without and self._runtime is not None:
            self._runtime.replays.check(number for number, _ in asked.without)
        answer = self.ask(asked) if asked.orders or asked.without is not None else None
        if answer is not None and not answer.accepted:
            raise ClusterError(f"run {self._launch.name} goes on as it is: {answer.reason}")
        runtime = self._runtime if self._told.ended is None else None
        return None if runtime is None or replay is None else runtime.replays.begin(replay)

    def close(self) -> None:
        """End the run at once if it is not over, and wait until nothing of it is left but this controller."""
        while self._told.ended is None:
            self.stop("user", 0.0)
            self._told.since(0, wait_s=0.1)

    def wait(self) -> Ended:
        """Block until the run is over and nothing of it is left but this controller."""
        while self._told.ended is None:
            self._told.since(0, wait_s=1.0)
        return self._told.ended

    def _live(self, lock: RunLock, begins: Callable[..., Beginning]) -> None:
        over = self._run(lock, begins)
        self._end(Ended(exit_code=over.exit_code, reason=over.reason, details=_details(over)))

    def _broke(self, error: BaseException) -> None:
        self._superseded = isinstance(error, Superseded)
        self._end(ended_by(error, run_dir=self._launch.run_dir))

    def _end(self, ended: Ended) -> None:
        self._told.end(ended)
        self._has_hands.set()  # whoever waits for them is to hear of the end

    def _run(self, lock: RunLock, begins: Callable[..., Beginning]) -> Finished | Failed:
        launch, rules = self._launch, Rules.of(self._launch.config, validates=self._launch.eval_batches > 0)
        with ExitStack() as on_end:
            on_end.callback(lock.release)
            beginning = begins(
                launch.run_dir.journal, rules=rules, checkpoint=launch.checkpoint, launch=launch.id,
                config=launch.config, began_t=launch.began_t,
            )  # fmt: skip
            on_end.callback(beginning.journal.close)
            self._told.turns.extend(beginning.turns)
            watching = on_end.enter_context(watchers(
                beginning, run_dir=launch.run_dir, config=launch.config, facts=launch.facts,
                vitals=lambda: self._runtime.vitals() if self._runtime is not None else {},
            ))  # fmt: skip
            state = beginning.state
            if isinstance(state, Finished | Failed):  # it was over, and its controller died at that
                end_leftovers(launch.name)
                return state
            hands = _hands(launch, beginning)
            on_end.callback(hands.close)
            if beginning.estate is not None:
                hands.adopt(state, skipped=_skipped(launch.run_dir, after=state.story.safe_step))
            with self._taking_hands:
                self._runtime = hands
                for event in self._early:
                    hands.tell(event)
            self._has_hands.set()
            brain, told = brain_of(launch.config, rules=rules), (*watching, self._told)
            return run(state, brain=brain, hands=hands, watchers=told, seq=beginning.seq)

    def _mind_owner(self, lease_s: float) -> None:
        """End the run when nobody asks for its news, and then this process."""
        while self._told.ended is None:
            if self._handed_over.wait(lease_s / 10):
                self.wait()
            elif self._launch.is_left(silent_s=time.monotonic() - self._asked_at):
                self.stop("client_gone", GONE_GRACE_S)
                self.wait()
        while not self._launch.is_left(silent_s=time.monotonic() - self._asked_at):
            time.sleep(lease_s / 10)
        self._has_left.set()

    def is_superseded_at_the_end(self) -> bool:
        """Block until the owner has stopped asking after the end, or another controller is in the place of this one.

        The name is the other's then.
        """
        while not self._has_left.wait(1.0):
            if self._superseded:
                return True
        return self._superseded


class ControllerActor(Controller):
    """The controller in an actor of its own; it ends its process once the run is over and its owner is gone.

    When its process dies, Ray makes another one, which takes the run over.
    """

    def __init__(self, launch: Launch) -> None:
        super().__init__(launch)
        start_thread(self._leave, name="leave", failed=self._broke)
        if ray.get_runtime_context().was_current_actor_reconstructed:
            self.take_over()

    def _leave(self) -> None:
        """Go for good: an actor whose process just ends is started again."""
        if not self.is_superseded_at_the_end():
            ray.kill(ray.get_runtime_context().current_actor, no_restart=True)
        os._exit(0)


CALLERS = 16  # each call of someone who waits has a thread
RESTARTS = 1000  # of its process; attempts that bring no step end the run long before (`elastic.max_restarts`)
RemoteController = ray.remote(num_cpus=0, max_restarts=RESTARTS, max_concurrency=CALLERS)(ControllerActor)


def _skipped(run_dir: RunDirectory, *, after: int) -> tuple[int, ...]:
    """The steps above `after` that were skipped."""
    return tuple(line["step"] for line in all_steps(run_dir.metrics) if line["skipped"] and line["step"] > after)


def _hands(launch: Launch, beginning: Beginning) -> RayRuntime:
    place = Place(
        run=launch.name,
        run_dir=str(launch.run_dir.path),
        checkpoint_dir=launch.checkpoint_dir,
        device=launch.device,
        factory=launch.factory,
        eval_batches=launch.eval_batches,
        began_t=launch.began_t,
        start_limit_s=launch.start_limit_s,
    )
    publisher = Publisher(config=launch.config, imprint=launch.imprint, directory=launch.checkpoint_dir)
    return RayRuntime(
        launch.config,
        place=place,
        make_sources=lambda: named(launch.sources)(launch.config),
        publisher=publisher,
        tenure=beginning.tenure,
        events=beginning.events,
    )


def ended_by(error: BaseException, *, run_dir: RunDirectory) -> Ended:
    """The end of a run whose controller cannot go on: one error and how to resume, or where this is wrong."""
    if isinstance(error, RaymegaError):
        told = f"raymega: {type(error).__name__}: {error}\nto resume: raymega train {quote(str(run_dir.config))}"
        return Ended(exit_code=error.exit_code, reason=str(error), details=told)
    told = "".join(traceback.format_exception(error))
    return Ended(exit_code=RaymegaBug.exit_code, reason=f"{type(error).__name__}: {error}", details=told)


def _details(over: Finished | Failed) -> str:
    return over.details if isinstance(over, Failed) else ""
