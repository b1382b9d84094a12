"""Ends what a client leaves of the Ray it started, however the client ended; runs as a program of its own.

    client --- pipe ---> reaper      the pipe closes when the client ends or dies, by whatever signal
                           |
                           kill every process that carries the client's mark, then remove the client's paths

A path may be the LOCK of a run. While its Ray goes, another may have taken the run already: then it is theirs, and
stays; who looks into the directory would else take a run that is starting for one that is over.

Every process of that Ray inherits the mark in its environment, so that nothing is found by name: nobody else's Ray
is touched. The reaper has a session of its own, so that a Ctrl-C on the terminal does not reach it.

    python reaper.py MARK PATH...        with the pipe as standard input
"""

import contextlib
import fcntl
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

MARK_VARIABLE = "RAYMEGA_OWNER"
LIMIT_S = 15.0
LOOKS = 3


def marks_of(mark: str) -> dict[str, str]:
    """What to add to the environment of those who are to carry `mark`.

    Ray's processes write their titles over a part of their environment, unless they are told to leave it alone.
    """
    return {MARK_VARIABLE: mark, "SPT_NOENV": "1"}


def marked(mark: str) -> list[int]:
    """Living processes whose environment carries `mark`, ourselves excepted."""
    wanted, found = f"{MARK_VARIABLE}={mark}".encode(), []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # it ended meanwhile, or is another user's
                if wanted in (entry / "environ").read_bytes().split(b"\0") and not _is_dead(entry):
                    found.append(int(entry.name))
    return found


def _is_dead(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}


def end(mark: str) -> list[int]:
    """Kill all that carry `mark` until none is left; what still lives after the limit is returned.

    One look may miss a process that is just being started by another, so none is believed only after several.
    """
    until, looks = time.monotonic() + LIMIT_S, 0
    while looks < LOOKS and time.monotonic() < until:
        left = marked(mark)
        looks = 0 if left else looks + 1
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.05)
    return marked(mark)


def remove(paths: Iterable[str]) -> None:
    """Remove files and directories; those that are gone already, or somebody else's by now, are left alone."""
    for path in map(Path, paths):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            _remove_unless_held(path)


def _remove_unless_held(file: Path) -> None:
    with contextlib.suppress(FileNotFoundError), file.open("rb") as content:
        fcntl.flock(content, fcntl.LOCK_EX)  # as whoever takes a run's lock does
        if os.path.samestat(os.stat(file), os.fstat(content.fileno())) and not _is_held(content.read()):
            file.unlink()


def _is_held(lock: bytes) -> bool:
    """Does the process that a run's lock names live, or is it one that cannot be seen from here?"""
    try:
        owner = json.loads(lock)
        entry, space = Path(f"/proc/{int(owner['pid'])}"), str(owner["space"])
    except (ValueError, TypeError, KeyError):  # damaged, which is nobody's
        return False
    if space != f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{os.readlink('/proc/self/ns/pid')}":
        return True
    try:
        return not _is_dead(entry)
    except OSError:
        return False


def main(mark: str, *paths: str) -> int:
    """Wait for the end of the client, then clean up."""
    sys.stdin.buffer.read()
    left = end(mark)
    remove(paths)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
