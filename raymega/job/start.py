"""Where a job begins, whatever interpreter it was begun with: one that lacks Ray gives way to that of the cluster.

    ray start --- with ---> .venv/bin/python --> raylet --> sh -c "python3 workloads/train.py .."
                                                            `----- of the PATH of the shell that ran `ray start`

A job's `python` is whatever stands first on that path, which is not Ray's own where the environment was not activated.
The raylet above says which one it starts its workers with; this process becomes that one. Nothing but the standard
library is loaded before. Source: `services.start_raylet` of Ray 2.60, which hands `--python_worker_command` over.
"""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

NEEDED = "ray"
WORKER_COMMAND = "--python_worker_command="
NO_RAY = 4


def main() -> None:
    """Train what the command line says; ends the process with the exit code of the run."""
    if not is_here(NEEDED):
        become_rays_own(interpreter_above(os.getppid()))
    from raymega.job.entry import main as run  # loads what needs the right interpreter

    run()


def is_here(package: str) -> bool:
    """Whether this interpreter has a package; a mere folder of its name, as /tmp/ray, is none."""
    spec = find_spec(package)
    return spec is not None and spec.origin is not None


def become_rays_own(interpreter: str | None) -> None:
    """Go on as `interpreter`, or end with a message that names this one."""
    if interpreter is not None and interpreter != sys.executable and os.access(interpreter, os.X_OK):
        print(f"raymega: {sys.executable} has no Ray; going on with Ray's own {interpreter}", flush=True)
        os.execv(interpreter, [interpreter, *sys.orig_argv[1:]])
    print(
        f"raymega: ClusterError: {sys.executable} has no Ray. A job runs under the python of the shell that started "
        "Ray. Activate its environment before `ray start`, or name its interpreter: "
        "ray job submit .. -- /path/to/.venv/bin/python workloads/train.py CONFIG",
        file=sys.stderr,
    )
    sys.exit(NO_RAY)


def interpreter_above(pid: int, *, proc: Path = Path("/proc")) -> str | None:
    """The interpreter of the first raylet among process `pid` and those above it; None if there is none."""
    while pid > 0:
        try:
            words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            status = (proc / str(pid) / "stat").read_text()
        except OSError:
            return None
        for word in words:
            if word.startswith(WORKER_COMMAND):
                return word.removeprefix(WORKER_COMMAND).split()[0]
        pid = int(status.rpartition(")")[2].split()[1])
    return None
