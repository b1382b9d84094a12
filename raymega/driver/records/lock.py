"""One writer for a run directory: the file LOCK names its owner and when the lock lapses unless it is renewed.

    {"host": "m1", "pid": 4711, .., "controller": "raymega:demo", "until": 1764439200.5, "id": "8c..", "ray": {..}}

    client of demo  ---- spawns, names it ---->  client of demo  ---- gives it its id ---->  raymega:demo
    in a notebook          `leave_to`            the keeper              `heir_of`           the controller

A live lock refuses a second run and names its owner. A lock that has lapsed, or whose process is known to be gone
(same boot, same process namespace, no such process), is taken over. From who launches a run to its controller it goes
from hand to hand, so that nobody takes a run that starts for one that is over. The file itself is changed under its own
`flock`, in one write; one that is damaged counts as lapsed, since an owner that lives writes it anew within seconds,
and of two that meet so the older controller is fenced off (`driver.records.tenure`).
"""

import fcntl
import json
import math
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from io import BufferedRandom
from pathlib import Path

import psutil

from raymega.driver.records.run_dir import cannot_write
from raymega.errors import ConfigError

LEASE_S = 15.0
LENGTH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class RayAt:
    """Which Ray. `address` leads there; `session` tells it from any other that is or was there, "" where unknown."""

    address: str
    session: str = ""

    def is_same(self, other: "RayAt") -> bool:
        if self.session and other.session:
            return self.session == other.session  # one Ray has several addresses
        return self.address == other.address


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a lock.

    Args:
        space: where `pid` means something: the boot and the process namespace.
        id: tells this holding of the lock from any other.
        ray: in which a controller lives; None: it is no controller, or one of an older version.
    """

    host: str
    pid: int
    started: float
    space: str
    controller: str
    until: float
    id: str = ""
    ray: RayAt | None = None

    @classmethod
    def of(
        cls, process: psutil.Process, *, controller: str, until: float, id: str = "", ray: RayAt | None = None
    ) -> "Owner":
        """A process of this host."""
        return cls(
            host=socket.gethostname(),
            pid=process.pid,
            started=process.create_time(),
            space=_process_space(),
            controller=controller,
            until=until,
            id=id,
            ray=ray,
        )

    def is_gone(self, now: float) -> bool:
        """Has the lock lapsed, or is its process known to have ended?"""
        return now >= self.until or (self.space == _process_space() and not self.is_seen())

    def is_seen(self) -> bool:
        """Is its process seen to live? Not so where this one cannot see it, as on another machine."""
        if self.space != _process_space():
            return False
        try:
            process = psutil.Process(self.pid)
            is_other = abs(process.create_time() - self.started) > 1.0
            return not is_other and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False

    def is_over(self, now: float) -> bool:
        """Is it known that nobody leads the run? A controller's process may be replaced until its lock lapses."""
        return now >= self.until if self.ray is not None else self.is_gone(now)


class RunLock:
    """The lock, held and renewed by a thread of its own until `release`. `id`: tells this holding from any other."""

    def __init__(self, file: Path, *, controller: str, ray: RayAt | None) -> None:
        self.id = uuid.uuid4().hex
        self._file, self._controller, self._ray = file, controller, ray
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="run-lock", daemon=True)

    @classmethod
    def acquire(cls, file: Path, *, controller: str, ray: RayAt | None = None, heir_of: str | None = None) -> "RunLock":
        """Take the lock.

        Args:
            ray: in which a controller lives.
            heir_of: id of the lock of whoever launches this; it is taken from its hands.
        Raises: ConfigError naming the owner while another run is alive in the directory; StateError on a full disk.
        """
        lock = cls(file, controller=controller, ray=ray)
        lock._take(lambda owner: owner.id == heir_of)
        return lock

    @classmethod
    def inherit(cls, file: Path, *, controller: str, ray: RayAt | None = None, heir_of: str | None = None) -> "RunLock":
        """Take the lock of a controller whose run this one takes over, alive or not, or before it had taken it itself.

        Raises: ConfigError if by now it is another run that holds the directory.
        """
        lock = cls(file, controller=controller, ray=ray)
        lock._take(lambda owner: owner.controller == controller or owner.id == heir_of)
        return lock

    def leave_to(self, pid: int, *, within_s: float) -> None:
        """Name process `pid` of this host as the owner, which is to take the lock as heir of this; renew it no more.

        Args:
            within_s: after which the lock lapses if it has not; if that process ends, the lock is nobody's at once.
        """
        self._end_renewal()
        with _open(self._file) as content:
            if self._is_mine(_read(content)):
                _write(content, self._owner(psutil.Process(pid), until=time.time() + within_s))

    def release(self) -> None:
        """Give the directory up; the file goes. Idempotent, whoever holds it by then."""
        if self._released.is_set():
            return
        self._end_renewal()
        with _open(self._file) as content:
            if self._is_mine(_read(content)):
                self._file.unlink(missing_ok=True)

    def _take(self, may_take: Callable[[Owner], bool]) -> None:
        with _open(self._file) as content:
            owner = _read(content)
            if owner is not None and not owner.is_gone(time.time()) and not may_take(owner):
                raise _in_use(self._file, owner)
            try:
                _write(content, self._me())
            except OSError as error:
                if owner is None:
                    self._file.unlink()
                raise cannot_write(self._file, error) from error
        self._thread.start()

    def _end_renewal(self) -> None:
        self._released.set()
        self._thread.join()

    def _is_mine(self, owner: Owner | None) -> bool:
        """Whether nobody else has it; a damaged one is whose it was."""
        return owner is None or owner.id == self.id

    def _me(self) -> Owner:
        return self._owner(psutil.Process(), until=time.time() + LEASE_S)

    def _owner(self, process: psutil.Process, *, until: float) -> Owner:
        return Owner.of(process, controller=self._controller, until=until, id=self.id, ray=self._ray)

    def _keep(self) -> None:
        while not self._released.wait(LEASE_S / 4):
            with suppress(OSError), _open(self._file) as content:  # a full disk is told by those who write more
                if self._is_mine(_read(content)):
                    _write(content, self._me())


def read_owner(file: Path) -> Owner | None:
    """Who holds the lock now; None if nobody does."""
    try:
        return _owner_in(file.read_bytes())
    except FileNotFoundError:
        return None


def _in_use(file: Path, owner: Owner) -> ConfigError:
    return ConfigError(
        f"the run directory {file.parent} is in use by {owner.controller} (process {owner.pid} on {owner.host}); a "
        "directory has one run. Stop that run, or choose another run.name",
        owner=asdict(owner),
    )


@contextmanager
def _open(file: Path) -> Iterator[BufferedRandom]:
    """The file, made if need be, with nobody else in it."""
    while True:
        try:
            handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise cannot_write(file, error) from error
        with os.fdopen(handle, "r+b") as content:
            fcntl.flock(content, fcntl.LOCK_EX)
            if _is_at(file, content):
                yield content
                return


def _is_at(file: Path, content: BufferedRandom) -> bool:
    """Is the open file still the one of that name? Its last owner may have removed it meanwhile."""
    try:
        return os.path.samestat(os.stat(file), os.fstat(content.fileno()))
    except FileNotFoundError:
        return False


def _read(content: BufferedRandom) -> Owner | None:
    return _owner_in(content.read())


def _owner_in(text: bytes) -> Owner | None:
    """Whom the text of a lock names; nobody where it is empty or damaged."""
    try:
        told = dict(json.loads(text))
        ray = told.get("ray")
        owner = Owner(
            host=str(told["host"]), pid=int(told["pid"]), started=float(told["started"]), space=str(told["space"]),
            controller=str(told["controller"]), until=float(told["until"]), id=str(told.get("id", "")),
            ray=None if ray is None else RayAt(address=str(ray["address"]), session=str(ray["session"])),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return None
    return owner if owner.pid > 0 and math.isfinite(owner.until) else None


def _write(content: BufferedRandom, owner: Owner) -> None:
    text = json.dumps(asdict(owner)).ljust(LENGTH).encode()
    os.pwrite(content.fileno(), text, 0)  # one write over the old text: readers see one or the other
    os.truncate(content.fileno(), len(text))


def _process_space() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return socket.gethostname()
    return f"{boot.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
