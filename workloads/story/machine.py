"""One more machine for a local Ray, as `raymega node` keeps one; it lives on this one."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent
LIMIT_S = 60.0


class Machine:
    """A node of a Ray cluster that is told, as spot machines are, before it goes."""

    def __init__(self, *, address: str, cpus: int, marks: Mapping[str, str], notice_s: float) -> None:
        ray = [BIN / "ray", "start", "--address", address, "--num-cpus", str(cpus), "--block", "--disable-usage-stats"]
        keep = [BIN / "raymega", "node", "--deadline", f"{notice_s:g}", "--"]
        self._process = subprocess.Popen(
            [*keep, *ray],
            env={**os.environ, **marks},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )

    def leave(self) -> int:
        """Give it notice; returns once it is gone, with 0 if it was left in time."""
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(LIMIT_S)

    def has_ended(self) -> bool:
        """Is it gone, or did it never come up?"""
        return self._process.poll() is not None

    def close(self) -> None:
        """End it at once."""
        if not self.has_ended():
            self._process.send_signal(signal.SIGINT)
            self._process.wait(LIMIT_S)
