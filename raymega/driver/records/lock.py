"""One writer for a run directory: the file LOCK names its owner and when the lock lapses unless it is renewed.

    {"host": "m1", "pid": 4711, "process": "..", "controller": "raymega:demo", "until": 1764439200.5}

A live lock refuses a second run and names its owner. A lock that has lapsed, or whose process is known to be gone
(same boot, same process namespace, no such process), is taken over. The file itself is changed under its own `flock`,
in one write; one that is damaged counts as lapsed, since an owner that lives writes it anew within seconds, and of two
that meet so the older controller is fenced off (`driver.records.tenure`).
"""

import fcntl
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
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
class Owner:
    """Who holds a lock. `space` tells where `pid` means something: the boot and the process namespace."""

    host: str
    pid: int
    started: float
    space: str
    controller: str
    until: float

    @classmethod
    def me(cls, *, controller: str, until: float) -> "Owner":
        process = psutil.Process()
        return cls(
            host=socket.gethostname(),
            pid=process.pid,
            started=process.create_time(),
            space=_process_space(),
            controller=controller,
            until=until,
        )

    def is_same(self, other: "Owner") -> bool:
        return (self.space, self.pid, self.started) == (other.space, other.pid, other.started)

    def is_gone(self, now: float) -> bool:
        """Has the lock lapsed, or is its process known to have ended?"""
        if now >= self.until:
            return True
        if self.space != _process_space():
            return False
        try:
            return abs(psutil.Process(self.pid).create_time() - self.started) > 1.0
        except psutil.NoSuchProcess:
            return True


class RunLock:
    """The lock, held and renewed by a thread of its own until `release`."""

    def __init__(self, file: Path, *, controller: str) -> None:
        self._file, self._controller = file, controller
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="run-lock", daemon=True)

    @classmethod
    def acquire(cls, file: Path, *, controller: str) -> "RunLock":
        """Take the lock.

        Raises: ConfigError naming the owner while another run is alive in the directory; StateError on a full disk.
        """
        lock = cls(file, controller=controller)
        with _open(file) as content:
            owner = _read(content)
            if owner is not None and not owner.is_gone(time.time()) and not owner.is_same(lock._me()):
                raise _in_use(file, owner)
            try:
                _write(content, lock._me())
            except OSError as error:
                if owner is None:
                    file.unlink()
                raise cannot_write(file, error) from error
        lock._thread.start()
        return lock

    @classmethod
    def inherit(cls, file: Path, *, controller: str) -> "RunLock":
        """Take the lock of a controller whose run this one takes over, alive or not.

        Raises: ConfigError if by now it is another run that holds the directory.
        """
        lock = cls(file, controller=controller)
        with _open(file) as content:
            owner = _read(content)
            if owner is not None and owner.controller != controller and not owner.is_gone(time.time()):
                raise _in_use(file, owner)
            _write(content, lock._me())
        lock._thread.start()
        return lock

    def release(self) -> None:
        """Give the directory up; the file goes. Idempotent, whoever holds it by then."""
        if self._released.is_set():
            return
        self._released.set()
        self._thread.join()
        with _open(self._file) as content:
            owner = _read(content)
            if owner is None or owner.is_same(self._me()):
                self._file.unlink(missing_ok=True)

    def _me(self) -> Owner:
        return Owner.me(controller=self._controller, until=time.time() + LEASE_S)

    def _keep(self) -> None:
        while not self._released.wait(LEASE_S / 4):
            with suppress(OSError), _open(self._file) as content:  # a full disk is told by those who write more
                owner = _read(content)
                if owner is None or owner.is_same(self._me()):
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
        told = json.loads(text)
        return Owner(
            host=str(told["host"]), pid=int(told["pid"]), started=float(told["started"]), space=str(told["space"]),
            controller=str(told["controller"]), until=float(told["until"]),
        )  # fmt: skip
    except (ValueError, TypeError, KeyError):
        return None


def _write(content: BufferedRandom, owner: Owner) -> None:
    text = json.dumps(asdict(owner)).ljust(LENGTH).encode()
    os.pwrite(content.fileno(), text, 0)  # one write over the old text: readers see one or the other
    os.truncate(content.fileno(), len(text))


def _process_space() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id")
    if not boot.exists():
        return socket.gethostname()
    return f"{boot.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
