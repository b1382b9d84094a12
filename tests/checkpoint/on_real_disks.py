"""Saves on a disk that is full, one that is read-only, and a directory without permission; run by test_real_disks.py.

Runs in a mount namespace of its own (`unshare -m`), so that every mount goes with this process. Prints one JSON line.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import torch

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.preflight import judge, probe
from raymega.checkpoint.save import Saver, SaveResult
from raymega.checkpoint.shard_writer import Commit
from raymega.checkpoint.store import LocalStore
from raymega.errors import StateError
from tests.checkpoint.worlds import items_of, plan_of, save, state_of

ROOM = 4 * 2**20


def attempt(root: Path, *, step: int) -> str:
    """What a worker reports of a save there."""
    results: list[SaveResult] = []
    saver = Saver(worker="w3", store=LocalStore(root), report=results.append)
    commit = Commit(run_id="tiny", step=step, generation=1)
    saver.start(items_of(plan_of(), 0, state_of(step)), commit=commit, wait_s=0)
    assert saver.wait(60)
    return getattr(results[0], "reason", "written")


def verdict(root: Path, *, checkpoint_bytes: int, keep: int) -> str:
    """What is said before step 1."""
    try:
        return "; ".join(judge(probe(LocalStore(root)), checkpoint_bytes=checkpoint_bytes, keep=keep)) or "fine"
    except StateError as error:
        return str(error)


def newest(root: Path) -> int | None:
    found = newest_complete(str(root))
    return found and found.manifest.step


def full_disk(root: Path) -> dict[str, object]:
    mount("-t", "tmpfs", "-o", f"size={ROOM}", "none", str(root))
    before = [verdict(root, checkpoint_bytes=size, keep=2) for size in (ROOM // 4, ROOM // 2, 2 * ROOM)]
    save(root, step=10)
    free = os.statvfs(root)
    (root / "other").write_bytes(bytes(free.f_bavail * free.f_frsize - 100_000))
    said = {"verdicts": before, "reason": attempt(root, step=20), "newest": newest(root)}
    left = [path.name for path in (root / "step-20").iterdir()]
    (root / "other").unlink()
    save(root, step=30, keep=1)
    return {**said, "left": left, "then": newest(root)}


def read_only(root: Path) -> dict[str, object]:
    mount("-t", "tmpfs", "none", str(root))
    save(root, step=10)
    mount("-o", "remount,ro", str(root))
    return {
        "reason": attempt(root, step=20),
        "newest": newest(root),
        "verdict": verdict(root, checkpoint_bytes=1, keep=1),
    }


def no_permission(root: Path) -> dict[str, object]:
    save(root, step=10)
    os.chmod(root, 0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # permission bits do not bind root
    try:
        verdicts = verdict(root, checkpoint_bytes=1, keep=1)
        return {"reason": attempt(root, step=20), "newest": newest(root), "verdict": verdicts}
    finally:
        os.seteuid(user)


def mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


def main(base: Path) -> None:
    torch.set_num_threads(1)
    found = {}
    for trial in (full_disk, read_only, no_permission):
        root = base / trial.__name__
        root.mkdir()
        found[trial.__name__] = trial(root)
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
