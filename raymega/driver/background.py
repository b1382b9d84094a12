"""A run in the background: a process in a session of its own that launches it and outlives whoever asked for it.

client --- spawns ---> keeper (this program) --- as `raymega train` does ---> Ray, controller, workers
   |                      |
may go at any time        what it prints is in RUNDIR/logs/console.log; ends with the run, and its Ray with it

Whoever spawns it holds the run's LOCK, and leaves it to the keeper by name before it goes on: the run is nobody's at no
time, and when the keeper dies before it has begun, that is seen at once.

python -m raymega.driver.background CONFIG.yaml auto|STEP|none ID-OF-THE-LOCK
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from raymega.config.load import load
from raymega.driver.launch import keeper_name
from raymega.driver.preflight import resolved
from raymega.driver.records.console_log import begin_console
from raymega.driver.records.lock import RunLock
from raymega.driver.records.reading import resume_of
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.train import train
from raymega.errors import RaymegaError

BEGIN_LIMIT_S = 120.0  # of a keeper, to load what it needs: seconds, on a machine that is not overloaded


def spawn(
    config: Path, *, run: RunDirectory, resume: str, env: dict[str, str], lock: RunLock
) -> subprocess.Popen[bytes]:
    """Start the keeper of a run.

    Args:
        config: the resolved config, as a file that stays.
        env: laid over this process's environment.
        lock: the run's, which is the keeper's from now on.
    """
    with begin_console(run) as out:
        keeper = subprocess.Popen(
            [sys.executable, "-m", "raymega.driver.background", str(config), resume, lock.id],
            stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1", **env},
        )  # fmt: skip
    lock.leave_to(keeper.pid, within_s=BEGIN_LIMIT_S)
    return keeper


def main(config: str, resume: str, heir_of: str) -> int:
    """Run to the end; the exit code is the run's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        full, run = resolved(load(Path(config).read_text(encoding="utf-8"), source=config))
        with ExitStack() as at_the_end:
            lock = RunLock.acquire(run.lock, controller=keeper_name(str(full.run.name)), heir_of=heir_of)
            at_the_end.callback(lock.release)
            return train(full, resume=resume_of(resume), lock=lock)
    except RaymegaError as error:
        print(f"raymega: {type(error).__name__}: {error}", file=sys.stderr)
        return error.exit_code


def _terminate(number: int, frame: FrameType | None) -> None:
    os.write(sys.stderr.fileno(), b"raymega: ended by SIGTERM before it began\n")  # where print may be in mid-line
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
