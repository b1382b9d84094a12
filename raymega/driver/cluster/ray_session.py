"""Where Ray comes from: the cluster that is there, or a local one that this process starts and ends.

    Ray already initialised here    used as it is
    RAY_ADDRESS is set              that cluster; the package travels along where it has other hosts
    neither                         a local Ray, with as many logical CPUs as the plan needs

Threads of one process share it (`cluster.connection`); it ends with the last session. A local Ray lives in a directory
of its own and shares its client's fate: it ends with it, and when the client is killed, `cluster.reaper` ends what is
left and removes the directory. It takes a token of its own, since Ray listens on the machine's address, and writes
nothing into the home directory. Others of the same user get in by `cluster.ray_access`.
"""

import fcntl
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import ray
from ray.exceptions import RayError
from ray.util.client import ray as client

import raymega
from raymega.config.fault import counted
from raymega.driver.cluster import reaper
from raymega.driver.cluster.connection import Connection, Wish
from raymega.driver.cluster.in_a_job import brings_modules
from raymega.driver.cluster.ray_access import Access
from raymega.driver.cluster.ray_address import WAY_OUT, refuse_dead, why_dead
from raymega.driver.cluster.ray_private import apply_auth, daemons_apart, session_name, signals_left_alone
from raymega.driver.records.lock import RayAt
from raymega.errors import ClusterError, PlanError

NAMESPACE = "raymega"
PREFIX = "raymega-"
LOCK_NAME = "owner.lock"
LONGEST_SOCKET = 107  # characters
OURS, RAYS = "/raymega-########", "/session_####-##-##_##-##-##_######_{pid}/sockets/plasma_store"
SWEEP_AGE_S = 60.0
REAPER_LIMIT_S = 20.0
STARTS = 3
START_LIMIT_S = 60  # of each; Ray's own 30 s may be too few for a busy machine
MOST_CPUS = 2**22  # processes of a Linux, one a CPU: PID_MAX_LIMIT of linux/threads.h
SMALLEST_STORE_BYTES = 128 * 2**20
LARGEST_STORE_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class RaySession:
    """A connection to Ray.

    Args:
        start_s: seconds it took to get it.
        marks: environment of processes that are to end with a Ray of our own.
    """

    owned: bool
    start_s: float
    marks: Mapping[str, str] = field(default_factory=dict)


def ray_here() -> RayAt | None:
    """The Ray to which this process is connected."""
    if not ray.is_initialized():
        return None
    return RayAt(address=ray.get_runtime_context().gcs_address, session=session_name())


def why_gone() -> str:
    """Why the Ray to which this process is connected answers no more; empty if it does, or is only reached by another.

    Ray itself tries for a minute to reach one that is gone, and then ends the process that is connected to it.
    """
    if client.is_connected():  # by ray://, whose server speaks with it
        return ""
    here = ray_here()
    return "" if here is None else why_dead(here.address, name=here.address)


OF_THIS_PROCESS = Connection(here=ray_here)  # its threads share what Ray has one of


def standing_ray() -> RayAt | None:
    """The Ray to which this process is connected for more than an answer."""
    return OF_THIS_PROCESS.standing()


def starts_ray() -> bool:
    """Would a session start a local Ray?"""
    return standing_ray() is None and _has_no_address()


def _has_no_address() -> bool:
    return os.environ.get("RAY_ADDRESS", "local") == "local"


@contextmanager
def ray_session(*, cpus: int, leftovers: tuple[Path, ...] = ()) -> Iterator[RaySession]:
    """Connect to Ray for the time of the block, and end exactly what was started for it.

    A session of another thread is shared; whoever leaves last ends what was started.

    Args:
        cpus: logical CPUs of a local Ray.
        leftovers: files to be removed with a local Ray when this process is killed.
    Raises: PlanError for more CPUs than any machine has; ClusterError where there comes none.
    """
    began, session = time.monotonic(), RaySession(owned=False, start_s=0.0)

    @signals_left_alone()
    def connect(stack: ExitStack) -> None:
        nonlocal session
        if _has_no_address():
            _refuse_beyond_a_machine(cpus)
            marks = _start_until_up(stack, cpus=cpus, leftovers=leftovers)
            session = RaySession(owned=True, start_s=time.monotonic() - began, marks=marks)
        else:
            stack.callback(shut_down)
            _connect_to_named()
            session = RaySession(owned=False, start_s=time.monotonic() - began)

    with OF_THIS_PROCESS.shared(Wish(who="a run in this process", stays=True), connect=connect):
        yield session


def shut_down() -> None:
    """Leave Ray. What is left of that where an interrupt breaks it off is done before the interrupt goes on."""
    try:
        ray.shutdown()
    finally:
        ray.shutdown()  # has nothing to do where the first has come to its end


def _refuse_beyond_a_machine(cpus: int) -> None:
    if cpus > MOST_CPUS:
        raise PlanError(
            f"a local Ray of {cpus:,} CPUs, a process each, is more than the "
            f"{counted(MOST_CPUS, noun='process')} of any machine. "
            "Use fewer run.devices or a smaller mesh, or set RAY_ADDRESS to a cluster."
        )


def _connect_to_named() -> None:
    """Connect to the cluster of RAY_ADDRESS; hand it the package where it has hosts other than this one."""
    refuse_dead(os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except ConnectionError as error:
        raise ClusterError(f"no Ray answers at RAY_ADDRESS={os.environ['RAY_ADDRESS']}: {error}. {WAY_OUT}") from error
    hosts = {node["NodeManagerHostname"] for node in ray.nodes() if node["Alive"]}
    if hosts - {socket.gethostname()} and not brings_modules():
        ray.shutdown()
        package = str(Path(raymega.__file__).parent)
        ray.init(
            namespace=NAMESPACE, log_to_driver=False, configure_logging=False, runtime_env={"py_modules": [package]}
        )


def _start_until_up(stack: ExitStack, *, cpus: int, leftovers: tuple[Path, ...]) -> Mapping[str, str]:
    """Enter a local Ray, and return its marks; one that does not come up is ended before the next is tried."""
    for _ in range(STARTS - 1):
        with suppress(ClusterError):
            return stack.enter_context(_local_ray(cpus=cpus, leftovers=leftovers))
    return stack.enter_context(_local_ray(cpus=cpus, leftovers=leftovers))


@contextmanager
def _local_ray(*, cpus: int, leftovers: tuple[Path, ...]) -> Iterator[Mapping[str, str]]:
    root = temp_root()
    _sweep(root)
    home = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
    mark = secrets.token_hex(16)
    with open(home / LOCK_NAME, "w") as lock:  # held by the reaper too, as long as it lives
        fcntl.flock(lock, fcntl.LOCK_EX)
        watcher = subprocess.Popen(
            [sys.executable, "-I", "-S", reaper.__file__, mark, str(home), *map(str, leftovers)],
            stdin=subprocess.PIPE,
            pass_fds=(lock.fileno(),),
            start_new_session=True,
        )
    try:
        _start(home, mark=mark, cpus=cpus)
        _access(leftovers).leave_in(home)
        yield reaper.marks_of(mark)
    finally:
        try:
            shut_down()
        finally:
            watcher.communicate(timeout=REAPER_LIMIT_S)
    if watcher.returncode:
        raise ClusterError(f"processes of the local Ray in {home} do not end; see `ps` for RAYMEGA_OWNER={mark}")


def _start(home: Path, *, mark: str, cpus: int) -> None:
    """Start Ray in `home`. Raises: ClusterError if it does not come up."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_raylet_start_wait_time_s", str(START_LIMIT_S))
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's 15 lets any other program of the machine go first
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    if os.environ["RAY_AUTH_MODE"] == "token" and "RAY_AUTH_TOKEN_PATH" not in os.environ:
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))  # stays: Ray reads it once in a process
    apply_auth()
    carried = reaper.marks_of(mark)
    os.environ.update(carried)
    try:
        with daemons_apart():
            ray.init(
                address="local",
                num_cpus=cpus,
                namespace=NAMESPACE,
                include_dashboard=False,
                log_to_driver=False,
                configure_logging=False,
                object_store_memory=_store_bytes(),
                _temp_dir=str(home),
            )
    except Exception as error:  # ray._private.node raises just that where a node does not come up in time
        if type(error) is not Exception and not isinstance(error, RuntimeError | OSError | RayError):
            raise
        raise ClusterError(
            f"a local Ray did not come up: {error} See what else keeps this machine busy, or set RAY_ADDRESS to a "
            "cluster that is up."
        ) from error
    finally:
        for variable in carried:
            del os.environ[variable]


def _access(locks: tuple[Path, ...]) -> Access:
    return Access(
        address=ray.get_runtime_context().gcs_address,
        mode=os.environ["RAY_AUTH_MODE"],
        token=os.environ.get("RAY_AUTH_TOKEN", ""),
        locks=tuple(map(str, locks)),
    )


def temp_root() -> Path:
    """The place for temporary files, unless its name is too long for the sockets that Ray puts below it."""
    chosen = tempfile.gettempdir()
    longest = f"{chosen}{OURS}{RAYS.format(pid=os.getpid())}"
    return Path(chosen if len(longest) <= LONGEST_SOCKET else "/tmp")


def _store_bytes() -> int:
    """Room for objects: pages are taken as they are used, so this is a bound rather than a size."""
    free = shutil.disk_usage("/dev/shm").free if Path("/dev/shm").is_dir() else SMALLEST_STORE_BYTES
    return max(SMALLEST_STORE_BYTES, min(LARGEST_STORE_BYTES, free // 2))


def _sweep(root: Path) -> None:
    """Remove directories of local Rays whose client and reaper are both gone."""
    for home in root.glob(f"{PREFIX}*"):
        with suppress(OSError), open(home / LOCK_NAME) as lock:  # no lock, or held: not ours to remove
            if time.time() - os.fstat(lock.fileno()).st_mtime < SWEEP_AGE_S:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(home, ignore_errors=True)
