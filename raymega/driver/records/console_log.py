"""What the keepers of a run have printed: RUNDIR/logs/console.log, launch after launch.

-- launched in the background
step: 0  driver: starting a local Ray with 6 CPUs
raymega: ClusterError: a local Ray did not come up: ..        <- what counts of a launch that came to nothing
"""

from pathlib import Path
from typing import BinaryIO

from raymega.driver.records.run_dir import RunDirectory

LAUNCHED = "-- launched in the background"
FAULT = "raymega: "  # how whoever ends with an error says so
LAST_LINES = 5
NO_WORD = "its process is gone, and has printed nothing"


def console_of(run: RunDirectory) -> Path:
    """Where the keepers print."""
    return run.logs / "console.log"


def begin_console(run: RunDirectory) -> BinaryIO:
    """The file, to be closed, for what the keeper of a new launch prints."""
    file = console_of(run).open("ab")
    file.write(f"{LAUNCHED}\n".encode())
    file.flush()
    return file


def last_words(run: RunDirectory) -> str:
    """The error with which the newest launch ended, or its last lines, or that there are none."""
    try:
        text = console_of(run).read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return NO_WORD
    lines = text.rpartition(f"{LAUNCHED}\n")[2].splitlines()
    fault = next((line.removeprefix(FAULT) for line in reversed(lines) if line.startswith(FAULT)), None)
    return fault or "\n".join(lines[-LAST_LINES:]) or NO_WORD
