"""Where the process of `raymega` begins: an answer to Ctrl-C, SIGTERM and a lost output before anything else is loaded.

    Ctrl-C       KeyboardInterrupt    "raymega: interrupted"                            130
    SIGTERM      SystemExit(15)       "raymega: terminated"                             143
    > /dev/full  OutputLost           "raymega: standard output cannot be written: .."    2
    | head       OutputLost           not a word: who read has enough                   141

A signal may come twice, as from `timeout`, which sends it to the process and then to its group: it is told once, and
what is open is closed on the way out all the same. Ray's own handler for SIGTERM raises the same. A run that trains
answers the signals itself (`driver.client.signals`), and needs no output (`driver.process.outlasting`).
"""

import io
import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TextIO

from raymega.driver.process.outlasting import OutputLost, Written, raise_lost, tell

UNTOLD = 2
OUT, ERR = 1, 2


def main() -> None:
    """Run the command line; ends the process with the exit code of what happened."""
    _hold_streams()
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        _run()
    except KeyboardInterrupt:  # while it loads; `run` makes it an exit code
        sys.exit(128 + signal.SIGINT)
    except OutputLost as lost:
        if isinstance(lost.cause, BrokenPipeError):
            sys.exit(128 + signal.SIGPIPE)
        tell(f"raymega: {lost}")
        sys.exit(UNTOLD)
    except SystemExit as end:
        if end.code != signal.SIGTERM:
            raise
        tell("raymega: terminated")
        sys.exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be closed, and nobody to catch an exception


def _run() -> None:
    try:
        from raymega.cli.app import main as run

        run()
    finally:
        sys.stdout.flush()


def _hold_streams() -> None:
    """Have every standard stream open, and its loss told: no file of a run may get the number of a closed one."""
    for number, mode in ((0, os.O_RDONLY), (OUT, os.O_RDONLY), (ERR, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number; such an output refuses what is written to it
    sys.stdout = _stream(OUT, lost=raise_lost, like=sys.stdout)
    sys.stderr = _stream(ERR, lost=lambda error: None, like=sys.stderr)


def _stream(number: int, *, lost: Callable[[OSError], None], like: TextIO | None) -> io.TextIOWrapper:
    """Text to a standard stream, encoded as Python has it."""
    file = io.BufferedWriter(Written(number, lost=lost))
    if like is None:
        return io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace")
    return io.TextIOWrapper(
        file, encoding=like.encoding, errors=like.errors, line_buffering=like.isatty() or number == ERR
    )


def _interrupt(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.default_int_handler)
    tell("raymega: interrupted")
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_IGN)
    sys.exit(number)
