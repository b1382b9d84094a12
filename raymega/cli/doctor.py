"""Is everything on this machine that a run needs? Each line a fact, and a way out where it falls short.

ok       python      3.11.7
warning  shm         /dev/shm has 64 MB; Ray keeps objects there, 1 GB or more is wanted. Start with --shm-size=4g
missing  ray         not installed. Run make train, or pip install -c constraints.txt -e .
"""

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import resource
import shutil
import socket
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import psutil

Standing = Literal["ok", "warning", "missing"]
SHM_BYTES = 2**30
FREE_BYTES = 2 * 2**30
MEMORY_BYTES = 4 * 2**30
FILES = 4096
PACKAGES = ("torch", "ray", "pyarrow", "pydantic", "safetensors", "tokenizers", "xxhash", "tensorboardX")
COMPILED = ("ray", "torch", "pyarrow")
CPU_INFO = Path("/proc/cpuinfo")
BF16 = {"amx_bf16": "AMX", "avx512_bf16": "vdpbf16ps", "bf16": "bfdot"}  # a processor's word -> what multiplies


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about the machine."""

    standing: Standing
    subject: str
    detail: str

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.standing:<9}{self.subject:<13}{self.detail}"


def findings() -> tuple[Finding, ...]:
    """Look at everything; takes some seconds, since torch and ray are loaded."""
    packages = tuple(_package(name) for name in PACKAGES)
    return (*packages, *(look() for look in LOOKS))


def judged(subject: str, *, fits: bool, detail: str, way_out: str) -> Finding:
    """A fact that is as it should be, or a warning with the way out."""
    return Finding(standing="ok", subject=subject, detail=detail) if fits else Finding(
        standing="warning", subject=subject, detail=f"{detail}. {way_out}"
    )  # fmt: skip


def _package(name: str) -> Finding:
    try:
        importlib.import_module(name)
    except ImportError as error:
        way_out = "Run make train, or pip install -c constraints.txt -e ."
        return Finding(standing="missing", subject=name, detail=f"{error}. {way_out}")
    return Finding(standing="ok", subject=name, detail=importlib.metadata.version(name))


def _python() -> Finding:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    return judged("python", fits=sys.version_info >= (3, 11), detail=detail, way_out="raymega needs 3.11 or newer")


def _byte_code() -> Finding:
    """Every actor loads what it needs: without byte code on disk each compiles some thousand modules first."""
    found = [spec for name in COMPILED if (spec := importlib.util.find_spec(name)) is not None and spec.origin]
    raw = [spec.name for spec in found if not Path(importlib.util.cache_from_source(str(spec.origin))).exists()]
    detail = f"of {', '.join(spec.name for spec in found)} is on disk" if not raw else f"of {', '.join(raw)} is missing"
    folder = sysconfig.get_path("purelib")
    way_out = f"Each worker compiles them anew, which takes seconds. Once: {sys.executable} -m compileall -q {folder}"
    return judged("byte code", fits=not raw, detail=detail, way_out=way_out)


def _cpus() -> Finding:
    usable = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    detail = f"{usable} usable cores, load {os.getloadavg()[0]:.1f}"
    return judged("cpus", fits=usable >= 2, detail=detail, way_out="Two are the least that is tested")


def _bf16() -> Finding:
    words = CPU_INFO.read_text(encoding="utf-8").split() if CPU_INFO.exists() else []
    own = [f"{word} ({what})" for word, what in BF16.items() if word in words]
    none = "cores have no products of their own for it: it saves memory, and no time"
    return Finding(standing="ok", subject="bf16", detail=f"cores have {', '.join(own)}" if own else none)


def _memory() -> Finding:
    memory = psutil.virtual_memory()
    detail = f"{memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB available"
    fits = memory.available >= MEMORY_BYTES
    return judged("memory", fits=fits, detail=detail, way_out="Each worker takes about 0.4 GiB besides the model")


def _shared_memory() -> Finding:
    shm = Path("/dev/shm")
    if not shm.is_dir():
        return Finding(standing="ok", subject="shm", detail="none on this system; Ray keeps objects in files")
    total = shutil.disk_usage(shm).total
    way_out = "Ray keeps objects there, 1 GiB or more is wanted. Start the container with a larger --shm-size"
    return judged("shm", fits=total >= SHM_BYTES, detail=f"/dev/shm has {total / 2**30:.1f} GiB", way_out=way_out)


def _disk() -> Finding:
    here = Path.cwd()
    free = shutil.disk_usage(here).free
    detail = f"{free / 2**30:.1f} GiB free below {here}"
    if not os.access(here, os.W_OK):
        return Finding(standing="warning", subject="disk", detail=f"{here} may not be written. Set run.dir elsewhere")
    return judged("disk", fits=free >= FREE_BYTES, detail=detail, way_out="Runs and checkpoints lie there; set run.dir")


def _open_files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    way_out = f"Workers and Ray open many. Raise it: ulimit -n {hard}"
    return judged("open files", fits=soft >= FILES, detail=f"{soft} at most (hard limit {hard})", way_out=way_out)


def _host_name() -> Finding:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        detail, way_out = f"{name} has no address: {error}", "Workers find each other by it; add it to /etc/hosts"
        return judged("host name", fits=False, detail=detail, way_out=way_out)
    return Finding(standing="ok", subject="host name", detail=f"{name} is {address}")


def _devices() -> Finding:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return Finding(standing="warning", subject="devices", detail="not known without torch. Install it first")
    if not torch.cuda.is_available():
        return Finding(standing="ok", subject="devices", detail="no CUDA device; workers run on cores")
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return Finding(standing="ok", subject="devices", detail=", ".join(names))


def _ray_address() -> Finding:
    address = os.environ.get("RAY_ADDRESS")
    if not address:
        return Finding(
            standing="ok", subject="cluster", detail="RAY_ADDRESS is not set; a local Ray is started for a run"
        )
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return Finding(standing="ok", subject="cluster", detail=f"RAY_ADDRESS is {address}")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
    except OSError as error:
        detail, way_out = f"RAY_ADDRESS {address} does not answer: {error}", "Start that cluster, or unset RAY_ADDRESS"
        return judged("cluster", fits=False, detail=detail, way_out=way_out)
    return Finding(standing="ok", subject="cluster", detail=f"RAY_ADDRESS {address} answers")


LOOKS: tuple[Callable[[], Finding], ...] = (
    _python, _byte_code, _cpus, _bf16, _memory, _shared_memory, _disk, _open_files, _host_name, _devices, _ray_address,
)  # fmt: skip
