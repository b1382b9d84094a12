"""Where a job begins, whatever interpreter and address it was given: the raylet above it knows those of its cluster.

    ray start --- with ---> .venv/bin/python --> raylet --> sh -c "python3 workloads/train.py .."
                                                            `----- of the PATH of the shell that ran `ray start`

A job's `python` is whatever stands first on that path, which is not Ray's own where the environment was not activated.
The raylet above says which one it starts its workers with; this process becomes that one. Nothing but the standard
library is loaded before. Source: `services.start_raylet` of Ray 2.60, which hands `--python_worker_command` over.

A job's RAY_ADDRESS is that of any Ray of the machine, if its cluster has not been begun by the newest `ray start`
(`JobSupervisor._get_driver_env_vars`): of several, whichever a set of addresses gives first. The raylet has its own.
"""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from raymega.driver.cluster.in_a_job import is_in_a_job

NEEDED = "ray"
WORKER_COMMAND, GCS = "--python_worker_command=", "--gcs-address="
ADDRESS = "RAY_ADDRESS"
NO_RAY = 4


def main() -> None:
    """Train what the command line says; ends the process with the exit code of the run."""
    raylet = raylet_above(os.getppid())
    if not is_here(NEEDED):
        become_rays_own(interpreter_of(raylet))
    if is_in_a_job():
        take_address(said(raylet, GCS))
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


def take_address(address: str | None) -> None:
    """Connect to the cluster that has taken the job, whatever other Ray there is on this machine."""
    given = os.environ.get(ADDRESS)
    if address is not None and address != given:
        print(f"raymega: {ADDRESS} is {given}, another Ray of this machine; the job is of {address}", flush=True)
        os.environ[ADDRESS] = address


def interpreter_of(raylet: Sequence[str]) -> str | None:
    """The one that it starts its workers with."""
    command = said(raylet, WORKER_COMMAND)
    return command.split()[0] if command else None


def said(words: Sequence[str], option: str) -> str | None:
    """What a command line says for an option; None if it says nothing."""
    return next((word.removeprefix(option) for word in words if word.startswith(option)), None)


def raylet_above(pid: int, *, proc: Path = Path("/proc")) -> tuple[str, ...]:
    """The command line of the first raylet among process `pid` and those above it; empty if there is none."""
    while pid > 0:
        try:
            words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
            status = (proc / str(pid) / "stat").read_text()
        except OSError:
            return ()
        if said(words, WORKER_COMMAND):
            return tuple(words)
        pid = int(status.rpartition(")")[2].split()[1])
    return ()
