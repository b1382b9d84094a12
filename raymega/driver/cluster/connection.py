"""The one connection to Ray that a process can have, and the threads that share it.

    thread 1    |-- asks run a --|                        makes the connection
    thread 2        |-- asks run a --------|              shares it; the last to leave takes it down
    thread 3            | waits for its turn |-- asks run b --|    which lives in another Ray
    session     |-- a run of this process ----------- ..  stays: whoever wants another Ray is told so, and does not wait

One that was there before, since somebody called `ray.init`, stays too: it is used, and left as it is.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from raymega.driver.records.lock import RayAt
from raymega.errors import ClusterError

TURN_LIMIT_S = 60.0
Connect = Callable[[ExitStack], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """Who wants a connection, and which.

    Args:
        who: as in "run demo".
        ray: in which that is; None: any that stays will do.
        stays: for how long it is wanted cannot be said; None of an answer only.
        elsewhere: what to type to have the same from another process.
    """

    who: str
    ray: RayAt | None = None
    stays: bool = False
    elsewhere: str = "from another process"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _User:
    """A block in which the connection is used, of this thread."""

    stays: bool
    thread: int = field(default_factory=threading.get_ident)


@dataclass(slots=True, kw_only=True, eq=False)
class _Held:
    """The connection as it stands. `ray` is None while it is made or taken down; `is_others`: not made here."""

    ray: RayAt | None = None
    is_others: bool = False
    users: list[_User] = field(default_factory=list)
    undo: ExitStack = field(default_factory=ExitStack)

    @property
    def stays(self) -> bool:
        return self.is_others or any(user.stays for user in self.users)

    def suits(self, wish: Wish) -> bool:
        assert self.ray is not None, "it is there"
        return self.stays if wish.ray is None else self.ray.is_same(wish.ray)


class Connection:
    """What the threads of a process share; `here` says to which Ray it is connected, by whomever."""

    def __init__(self, *, here: Callable[[], RayAt | None]) -> None:
        self._here = here
        self._changed = threading.Condition()
        self._held: _Held | None = None
        self._waiting: deque[_User] = deque()  # in the order in which they came: so each gets its turn

    @contextmanager
    def shared(self, wish: Wish, *, connect: Connect) -> Iterator[None]:
        """Be connected for the time of the block, by `connect` if nobody is.

        Args:
            connect: leaves what takes the connection down; who leaves last does that.
        Raises: ClusterError naming both Rays where this process is connected to another than the one that is wanted.
        """
        user = _User(stays=wish.stays)
        try:  # from here on, since an interrupt may come at any point
            held = self._join(user, wish)
            if held.ray is None:
                self._make(held, connect)
            yield
        finally:
            self._leave(user)

    def standing(self) -> RayAt | None:
        """The Ray to which this process is connected for more than an answer."""
        with self._changed:
            held = self._held or self._found()
            return held.ray if held is not None and held.stays else None

    def _join(self, user: _User, wish: Wish) -> _Held:
        """Wait until `user` may share what there is, or is to make it."""
        until = time.monotonic() + TURN_LIMIT_S
        with self._changed:
            self._waiting.append(user)
            try:
                while not self._is_let_in(user, wish):
                    if not self._changed.wait(max(0.0, until - time.monotonic())):
                        raise _refusal(wish, self._held, why=BUSY)
                assert self._held is not None, "someone is let in"
                return self._held
            finally:
                self._waiting.remove(user)
                self._changed.notify_all()

    def _is_let_in(self, user: _User, wish: Wish) -> bool:
        held = self._held or self._found()
        if held is None:
            if self._waiting[0] is not user:
                return False
            held = _Held()
        elif held.ray is None:
            return False
        elif not held.suits(wish):
            if held.stays or user.thread in [other.thread for other in held.users]:
                raise _refusal(wish, held, why=_reason(held))
            return False
        held.users.append(user)
        self._held = held
        return True

    def _found(self) -> _Held | None:
        here = self._here()
        return None if here is None else _Held(ray=here, is_others=True)

    def _make(self, held: _Held, connect: Connect) -> None:
        here = None
        try:
            with ExitStack() as stack:
                connect(stack)
                here = self._here()
                assert here is not None, "it is connected"
                held.undo = stack.pop_all()
        finally:
            with self._changed:
                held.ray, self._held = here, held if here is not None else None
                self._changed.notify_all()

    def _leave(self, user: _User) -> None:
        with self._changed:
            held = self._held
            if held is None or user not in held.users:
                return  # it was never let in, or there was no connection to be made
            held.users.remove(user)
            self._changed.notify_all()  # of those who are left none may stay
            if held.users:
                return
            held.ray = None
        try:
            held.undo.close()
        finally:
            with self._changed:
                self._held = None
                self._changed.notify_all()


OTHERS = "Call ray.shutdown() first, or ask {elsewhere}."
OURS = "A run of this process needs it until it is over. Ask {elsewhere}."
NESTED = "This thread is asking something there itself. Let that come to its end first, or ask {elsewhere}."
BUSY = f"Other threads have been asking something there for {TURN_LIMIT_S:.0f} s. Ask again, or {{elsewhere}}."


def _reason(held: _Held) -> str:
    if held.is_others:
        return OTHERS
    return OURS if held.stays else NESTED


def _refusal(wish: Wish, held: _Held | None, *, why: str) -> ClusterError:
    there = held.ray.address if held is not None and held.ray is not None else "one that is just being reached or left"
    wanted = f"lives in the Ray at {wish.ray.address}" if wish.ray is not None else "wants a Ray that stays"
    return ClusterError(
        f"{wish.who} {wanted}, and this process is connected to another, {there}; a process has one connection. "
        f"{why.format(elsewhere=wish.elsewhere)}"
    )
