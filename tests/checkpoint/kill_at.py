"""Save step 4 after step 2 and die by SIGKILL at the n-th boundary of the file system; run by test_crash.py.

A boundary is the moment before a file is opened for writing, written to, synced, renamed or removed, or a directory is
made or removed, anywhere below the directory of checkpoints; of the pieces of a file, each sixteenth. Prints one line
for each n: `n killed|finished`.
"""

import itertools
import os
import shutil
import signal
import sys
from pathlib import Path

import torch

from raymega.checkpoint import shard_writer
from tests.checkpoint.worlds import plan_of, save

EVENTS = ("os.rename", "os.remove", "os.mkdir", "os.rmdir")


class Fuse:
    """Kills this process when it has counted down."""

    def __init__(self, *, root: Path, left: int) -> None:
        self.root, self.left = str(root), left

    def burn(self) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self.left -= 1

    def audit(self, event: str, arguments: tuple) -> None:
        writes = event == "open" and isinstance(arguments[1], str) and "w" in arguments[1]
        if (event in EVENTS or writes) and str(arguments[0]).startswith(self.root):
            self.burn()


def fused(fuse: Fuse, plain, every: int = 1):  # type: ignore[no-untyped-def]
    calls = itertools.count()

    def call(*arguments, **options):  # type: ignore[no-untyped-def]
        if next(calls) % every == 0:
            fuse.burn()
        return plain(*arguments, **options)

    return call


def child(root: Path, n: int) -> None:
    fuse = Fuse(root=root, left=n)
    os.fsync = fused(fuse, lambda descriptor: None)  # what a killed process has written is not lost
    shard_writer._write_piece = fused(fuse, shard_writer._write_piece, every=16)
    sys.addaudithook(fuse.audit)
    save(root, step=4, plan=plan_of(tp=2), keep=1)
    os._exit(0)


def main(base: Path) -> None:
    torch.set_num_threads(1)
    save(base / "before", step=2, plan=plan_of(), keep=1)
    for n in range(1000):
        root = base / str(n)
        shutil.copytree(base / "before", root)
        pid = os.fork()
        if pid == 0:
            child(root, n)
        _, status = os.waitpid(pid, 0)
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            print(n, "finished")
            return
        print(n, "killed")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
