"""`raymega train` where the disk of its run directory is full, or nearly; run by test_bad_input.py.

Runs in a mount namespace of its own, so that the disks go with this process. Prints one JSON line: how the command
ended, what it said, and which files are not as they were.
"""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from hashlib import sha256
from pathlib import Path

import ray

from raymega.cli.app import main

ROOM_BYTES = 1 << 20
LITTLE_BYTES = 64 << 10


def fill(disk: Path, *, but: int) -> None:
    free = os.statvfs(disk)
    (disk / "other").write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - but)))


def contents(disk: Path) -> dict[str, str]:
    return {str(path): sha256(path.read_bytes()).hexdigest() for path in sorted(disk.rglob("*")) if path.is_file()}


def no_ray(*_: object, **__: object) -> None:
    raise AssertionError("a Ray was started")


def trained(base: Path, *, but: int) -> dict[str, object]:
    """What the command line says with a disk at BASE/runs that has `but` bytes free."""
    disk = base / "runs"
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "none", str(disk)], check=True)
    (disk / "demo").mkdir()
    (disk / "demo" / "config.yaml").write_text((base / "run.yaml").read_text())
    fill(disk, but=but)
    before, code = contents(disk), None
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as told:
        try:
            main()
        except SystemExit as end:
            code = end.code
    return {"code": code, "told": told.getvalue(), "changed": [*(contents(disk).items() ^ before.items())]}


def run(base: Path) -> None:
    """A disk without any room, and then, mounted over it, one with little."""
    os.chdir(base)
    (base / "runs").mkdir(exist_ok=True)
    ray.init = no_ray
    sys.argv = ["raymega", "train", "run.yaml"]
    print(json.dumps({"nothing": trained(base, but=0), "little": trained(base, but=LITTLE_BYTES)}))


if __name__ == "__main__":
    run(Path(sys.argv[1]))
