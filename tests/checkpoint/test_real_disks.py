"""A full disk, a read-only one and a missing permission: named, and the checkpoint before stays the newest."""

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMESPACE = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "--map-root-user"]


@pytest.fixture(scope="module")
def said() -> Iterator[dict[str, Any]]:
    if subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine permits no mount namespace, so no disk of limited size")
    with tempfile.TemporaryDirectory() as base:
        os.chmod(base, 0o755)
        command = [*NAMESPACE, sys.executable, "-m", "tests.checkpoint.on_real_disks", base]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert not list(Path(base, "full_disk").iterdir()), "the mount went with its process"
        yield json.loads(done.stdout)


def test_a_full_disk_is_reported_by_worker_place_and_cause(said: dict[str, Any]):
    assert re.fullmatch(
        r"w3 could not write to .*/step-20: ENOSPC No space left on device", said["full_disk"]["reason"]
    )


def test_a_full_disk_leaves_the_checkpoint_before_and_no_half_file(said: dict[str, Any]):
    assert said["full_disk"]["newest"] == 10
    assert said["full_disk"]["left"] == []


def test_with_room_again_the_next_save_goes_through(said: dict[str, Any]):
    assert said["full_disk"]["then"] == 30


def test_before_step_one_a_disk_too_small_is_refused_and_one_too_small_for_keep_is_warned_of(said: dict[str, Any]):
    fine, warned, refused = said["full_disk"]["verdicts"]
    assert fine == "fine"
    assert "checkpoint.keep=2 needs 6,291,456 more bytes" in warned
    assert re.match(r"a checkpoint has 8,388,608 bytes; .* has 4,[\d,]+ bytes free. Make room", refused)


@pytest.mark.parametrize(("trial", "code"), [("read_only", "EROFS"), ("no_permission", "EACCES")])
def test_a_place_that_cannot_be_written_is_named_before_and_at_the_save(said: dict[str, Any], trial: str, code: str):
    assert re.fullmatch(rf"w3 could not write to .*/step-20: {code} .+", said[trial]["reason"])
    assert said[trial]["newest"] == 10
    assert re.match(r"no checkpoint can be written to .* on .*: .*Set checkpoint.path", said[trial]["verdict"])
