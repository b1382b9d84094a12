"""Which sockets of this process belong to a group, and how to cut them from another thread.

gloo has no abort: a blocked call ends only when its connection does. So the connections that appear while a group is
built are noted, and cutting them wakes every call that waits on them, here and at the peers, within milliseconds.

    before = open_sockets()
    ... build ...
    mine = [s for s in new_connections(before) if belongs(s)]
    cut(mine)                      any thread, any time; a connection that is closed or whose number was given
                                   to another file meanwhile is left alone

A listening socket is never cut: gloo's loop thread would end the process.
"""

import os
import select
import socket
from collections.abc import Iterable
from dataclasses import dataclass

Address = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connected socket of this process; `inode` tells it from a later file with the same `fd`."""

    fd: int
    inode: int
    local: Address
    remote: Address


def open_sockets() -> frozenset[int]:
    """Inodes of all sockets of this process."""
    return frozenset(inode for _, inode in _socket_files())


def new_connections(before: frozenset[int]) -> tuple[Connection, ...]:
    """The connected sockets that were not there `before`."""
    seen = (_connection(fd, inode) for fd, inode in _socket_files() if inode not in before)
    return tuple(connection for connection in seen if connection is not None)


def new_listeners(before: frozenset[int]) -> tuple[Address, ...]:
    """Where sockets that were not there `before` listen."""
    seen = (_listening_at(fd, inode) for fd, inode in _socket_files() if inode not in before)
    return tuple(address for address in seen if address is not None)


def cut(connections: Iterable[Connection]) -> None:
    """End connections in both directions; what has been sent still arrives."""
    for connection in connections:
        copy = _copy(connection.fd, connection.inode)
        if copy is None:
            continue
        with copy:
            try:
                copy.shutdown(socket.SHUT_RDWR)
            except OSError:  # the peer was faster
                continue


def has_ended(connections: Iterable[Connection]) -> bool:
    """Whether one of them has ended in both directions, at whichever end, or is closed already."""
    for connection in connections:
        copy = _copy(connection.fd, connection.inode)
        if copy is None:
            return True
        with copy:
            state = select.poll()
            state.register(copy, 0)  # nothing but the end is asked for
            if state.poll(0):
                return True
    return False


def _socket_files() -> list[tuple[int, int]]:
    """(fd, inode) of every open socket."""
    files = []
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:  # closed since the listing
            continue
        if target.startswith("socket:["):
            files.append((int(name), int(target[len("socket:[") : -1])))
    return files


def _copy(fd: int, inode: int) -> socket.socket | None:
    """A duplicate that can be used safely, unless `fd` is another file by now."""
    try:
        duplicate = os.dup(fd)
    except OSError:
        return None
    if os.fstat(duplicate).st_ino != inode:
        os.close(duplicate)
        return None
    return socket.socket(fileno=duplicate)


def _connection(fd: int, inode: int) -> Connection | None:
    copy = _copy(fd, inode)
    if copy is None:
        return None
    with copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        try:
            remote = copy.getpeername()
        except OSError:  # not connected
            return None
        return Connection(fd=fd, inode=inode, local=_address(copy.getsockname()), remote=_address(remote))


def _listening_at(fd: int, inode: int) -> Address | None:
    copy = _copy(fd, inode)
    if copy is None:
        return None
    with copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        listens = copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        return _address(copy.getsockname()) if listens else None


def _address(name: tuple[str, int] | tuple[str, int, int, int]) -> Address:
    return name[0].removeprefix("::ffff:"), name[1]
