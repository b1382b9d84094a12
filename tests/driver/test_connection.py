"""The threads of a process share one connection to Ray: each asks in the Ray that it means, and cuts nobody off."""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from raymega.driver.cluster import connection as connection_module
from raymega.driver.cluster.connection import Connection, Wish
from raymega.driver.records.lock import RayAt
from raymega.errors import ClusterError
from tests.waiting import eventually

LIMIT_S = 20.0


class FakeRay:
    """Connects once, as Ray does. `told`: what happened; `share`: the process's connection to it."""

    def __init__(self) -> None:
        self.here: RayAt | None = None
        self.told: list[str] = []
        self.connection = Connection(here=lambda: self.here)

    @contextmanager
    def asking(self, address: str | None, *, stays: bool = False) -> Iterator[None]:
        wish = Wish(who="run demo", ray=None if address is None else RayAt(address=address), stays=stays)

        def connect(stack: ExitStack) -> None:
            self.init(address or "own")
            stack.callback(self.shutdown)

        with self.connection.shared(wish, connect=connect):
            assert self.here is not None
            assert address in (None, self.here.address)
            yield

    def init(self, address: str) -> None:
        assert self.here is None, "Maybe you called ray.init twice by accident?"
        self.here = RayAt(address=address)
        self.told.append(f"+{address}")

    def shutdown(self) -> None:
        assert self.here is not None, "it is taken down once"
        self.told.append(f"-{self.here.address}")
        self.here = None

    @property
    def waiting(self) -> int:
        return len(self.connection._waiting)


@pytest.fixture
def ray() -> Iterator[FakeRay]:
    made = FakeRay()
    yield made
    assert made.waiting == 0
    assert made.connection._held is None


@contextmanager
def thread(work: Callable[[], None]) -> Iterator[None]:
    """Another thread that does `work` meanwhile, without a fault."""
    faults: list[BaseException] = []

    def noted() -> None:
        try:
            work()
        except (ClusterError, AssertionError) as error:
            faults.append(error)

    made = threading.Thread(target=noted)
    made.start()
    yield
    made.join(LIMIT_S)
    assert (made.is_alive(), faults) == (False, [])


def asks(ray: FakeRay, address: str | None, *, until: threading.Event, stays: bool = False) -> Callable[[], None]:
    def work() -> None:
        with ray.asking(address, stays=stays):
            assert until.wait(LIMIT_S)

    return work


def test_threads_that_ask_at_once_share_one_connection_and_the_last_takes_it_down(ray: FakeRay):
    all_in = threading.Barrier(8)

    def work() -> None:
        for _ in range(5):
            with ray.asking("a"):
                all_in.wait(LIMIT_S)
            all_in.wait(LIMIT_S)

    with ExitStack() as threads:
        for _ in range(8):
            threads.enter_context(thread(work))
    assert ray.told == ["+a", "-a"] * 5


def test_who_means_another_ray_waits_for_its_turn_while_others_go_on_in_the_first(ray: FakeRay):
    answered, never = threading.Event(), threading.Event()
    never.set()
    with thread(asks(ray, "a", until=answered)):
        eventually(lambda: ray.told == ["+a"])
        with thread(asks(ray, "b", until=never)):
            eventually(lambda: ray.waiting == 1)
            with ray.asking("a"):  # whoever asks at length there holds up nobody who asks the same run
                assert ray.waiting == 1
            answered.set()
    assert ray.told == ["+a", "-a", "+b", "-b"]


def test_many_threads_and_rays_each_get_their_turn(ray: FakeRay):
    def work(seed: int) -> Callable[[], None]:
        dice = random.Random(seed)
        return lambda: [nested(ray, dice.choice("abc"), depth=dice.randint(1, 3)) for _ in range(20)] and None

    with ExitStack() as threads:
        for seed in range(8):
            threads.enter_context(thread(work(seed)))
    assert ray.here is None
    assert all(up[1:] == down[1:] for up, down in zip(ray.told[::2], ray.told[1::2], strict=True))


def nested(ray: FakeRay, address: str, *, depth: int) -> None:
    if depth:
        with ray.asking(address):
            nested(ray, address, depth=depth - 1)


def test_a_thread_that_asks_elsewhere_in_the_midst_of_asking_is_refused_and_does_not_wait_for_itself(ray: FakeRay):
    with ray.asking("a:1"):
        with pytest.raises(ClusterError, match=r"run demo lives in the Ray at b:2, .* another, a:1; .*This thread"):
            ray.asking("b:2").__enter__()
        assert ray.told == ["+a:1"]


def test_a_connection_that_was_there_is_used_and_left_as_it_is(ray: FakeRay):
    ray.init("a:1")
    for address in ("a:1", None):
        with ray.asking(address), ray.asking(address, stays=True):
            pass
    with pytest.raises(ClusterError, match=r"lives in the Ray at b:2, .* another, a:1; .*ray\.shutdown\(\) first"):
        ray.asking("b:2").__enter__()
    assert ray.told == ["+a:1"]
    ray.shutdown()
    with ray.asking("b:2"):
        pass


def test_a_session_is_shared_and_who_means_another_ray_is_told_so_at_once(ray: FakeRay):
    with ray.asking(None, stays=True):
        assert ray.connection.standing() == RayAt(address="own")
        with ray.asking("own"), ray.asking(None, stays=True):
            pass
        with pytest.raises(ClusterError, match=r"lives in the Ray at b:2, .* another, own; .*A run of this process"):
            ray.asking("b:2").__enter__()
    assert ray.told == ["+own", "-own"]


def test_a_session_that_ends_cuts_nobody_off_who_still_asks(ray: FakeRay):
    answered, begun = threading.Event(), threading.Event()
    with ray.asking(None, stays=True):
        other = thread(lambda: (begun.set(), asks(ray, "own", until=answered)()) and None)
        other.__enter__()
        assert begun.wait(LIMIT_S)
        eventually(lambda: len(ray.connection._held.users) == 2)
    assert ray.told == ["+own"]
    assert ray.connection.standing() is None, "what is asked there is about to end"
    answered.set()
    other.__exit__(None, None, None)
    assert ray.told == ["+own", "-own"]


def test_a_session_does_not_begin_in_a_ray_that_others_only_ask_something(ray: FakeRay):
    answered, never = threading.Event(), threading.Event()
    never.set()
    with thread(asks(ray, "a", until=answered)):
        eventually(lambda: ray.told == ["+a"])
        assert ray.connection.standing() is None
        with thread(asks(ray, None, until=never, stays=True)):
            eventually(lambda: ray.waiting == 1)
            answered.set()
    assert ray.told == ["+a", "-a", "+own", "-own"]


def test_where_a_connection_cannot_be_made_the_next_tries_again(ray: FakeRay):
    def fail(stack: ExitStack) -> None:
        stack.callback(ray.told.append, "undone")
        raise ClusterError("nobody answers")

    for _ in range(2):
        with pytest.raises(ClusterError, match="nobody answers"):
            ray.connection.shared(Wish(who="x", ray=RayAt(address="a")), connect=fail).__enter__()
    with ray.asking("b"):
        assert ray.told == ["undone", "undone", "+b"]


@pytest.mark.parametrize("point", ["_join", "_make"])
@pytest.mark.parametrize("done", [False, True])
def test_an_interrupt_at_any_point_leaves_no_connection_and_holds_up_nobody(ray: FakeRay, monkeypatch, point, done):
    real = getattr(Connection, point)

    def broken_off(*given: object) -> None:
        if done:
            real(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Connection, point, broken_off)
        with pytest.raises(KeyboardInterrupt):
            ray.asking("a").__enter__()
    assert ray.here is None
    monkeypatch.setattr(connection_module, "TURN_LIMIT_S", 0.0)
    with ray.asking("b"):
        pass


def test_a_turn_that_does_not_come_is_told_with_both_rays(ray: FakeRay, monkeypatch):
    monkeypatch.setattr(connection_module, "TURN_LIMIT_S", 0.05)
    answered = threading.Event()
    with thread(asks(ray, "a:1", until=answered)):
        eventually(lambda: ray.told == ["+a:1"])
        with pytest.raises(ClusterError, match=r"in the Ray at b:2, .* another, a:1; .*Other threads have been asking"):
            ray.asking("b:2").__enter__()
        answered.set()


def test_a_ray_with_two_addresses_is_one_and_another_at_the_same_address_is_not():
    inside, outside = RayAt(address="10.0.0.1:1", session="s1"), RayAt(address="head:1", session="s1")
    assert inside.is_same(outside)
    assert not inside.is_same(RayAt(address="10.0.0.1:1", session="s2"))
    assert inside.is_same(RayAt(address="10.0.0.1:1"))
