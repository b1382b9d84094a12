"""A run in the background: a process in a session of its own that launches it and outlives whoever asked for it.

client --- spawns ---> keeper (this program) --- as `raymega train` does ---> Ray, controller, workers
   |                      |
may go at any time        what it prints is in RUNDIR/logs/console.log; ends with the run, and its Ray with it

python -m raymega.driver.background CONFIG.yaml auto|STEP|none
"""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from raymega.config.load import load
from raymega.driver.records.reading import resume_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.train import train
from raymega.errors import RaymegaError

LAST_LINES = 5


def console_of(run: RunDirectory) -> Path:
    """Where the keeper of a run prints."""
    return run.logs / "console.log"


def spawn(config: Path, *, run: RunDirectory, resume: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start the keeper of a run.

    Args:
        config: the resolved config, as a file that stays.
        env: laid over this process's environment.
    """
    with console_of(run).open("ab") as out:
        return subprocess.Popen(
            [sys.executable, "-m", "raymega.driver.background", str(config), resume],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        )  # fmt: skip


def last_words(run: RunDirectory) -> str:
    """The newest lines that the keeper of a run has printed."""
    try:
        return "\n".join(console_of(run).read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:])
    except FileNotFoundError:
        return ""


def main(config: str, resume: str) -> int:
    """Run to the end; the exit code is the run's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        return train(load(Path(config).read_text(encoding="utf-8"), source=config), resume=resume_of(resume))
    except RaymegaError as error:
        print(f"raymega: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
