"""`raymega train` where the disk of its run directory is full, or nearly; run by test_bad_input.py.

Runs in a mount namespace of its own, so that the disk goes with this process. Ends as the command does, and says on
standard output whether the files that lay on the disk are as they were.
"""

import os
import subprocess
import sys
from pathlib import Path

import ray

from raymega.cli.app import main

ROOM_BYTES = 1 << 20
LITTLE_BYTES = 64 << 10


def fill(disk: Path, *, but: int) -> None:
    free = os.statvfs(disk)
    (disk / "other").write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - but)))


def contents(disk: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(disk.rglob("*")) if path.is_file()}


def no_ray(*_: object, **__: object) -> None:
    raise AssertionError("a Ray was started")


def run(base: Path, free: str) -> None:
    """The command line, with a disk at BASE/runs that has nothing or little free."""
    os.chdir(base)
    disk = base / "runs"
    disk.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "none", str(disk)], check=True)
    (disk / "demo").mkdir()
    (disk / "demo" / "config.yaml").write_text((base / "run.yaml").read_text())
    fill(disk, but=LITTLE_BYTES if free == "little" else 0)
    before = contents(disk)
    ray.init = no_ray
    sys.argv = ["raymega", "train", "run.yaml"]
    try:
        main()
    finally:
        print("all is as it was" if contents(disk) == before else f"changed: {contents(disk).keys() ^ before.keys()}")


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2])
