"""SIGKILL at every boundary of a save: one whole checkpoint is always there, and the next attempt goes through."""

import subprocess
import sys
from pathlib import Path

import pytest

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.verify import list_checkpoints, verify
from tests.checkpoint.worlds import plan_of, save


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Directories of checkpoints as each kill has left them, in order; the last save was not killed."""
    base = tmp_path_factory.mktemp("killed")
    command = [sys.executable, "-m", "tests.checkpoint.kill_at", str(base)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    outcomes = [line.split()[1] for line in done.stdout.splitlines()]
    assert outcomes == ["killed"] * (len(outcomes) - 1) + ["finished"]
    assert len(outcomes) > 30
    return [base / str(n) for n in range(len(outcomes))]


def test_killed_anywhere_a_whole_checkpoint_is_there(roots: list[Path]):
    steps = []
    for root in roots:
        assert "damaged" not in [row.standing for row in list_checkpoints(str(root))]
        found = newest_complete(str(root))
        assert found is not None
        assert not found.warnings
        steps.append(found.manifest.step)
    published = steps.index(4)
    assert steps == [2] * published + [4] * (len(steps) - published)
    assert 15 < published < len(steps) - 2  # kills lie before and after the manifest


def test_the_save_after_a_kill_leaves_nothing_of_the_one_before(roots: list[Path]):
    for root in roots[::5]:
        save(root, step=4, plan=plan_of(dp=2), keep=1, generation=2)
        assert verify(str(root)).ok
        names = {path.name for path in (root / "step-4").iterdir()}
        assert all(name == "manifest.json" or name.startswith("g2-") for name in names)
        assert [path.name for path in root.iterdir()] == ["step-4"]
