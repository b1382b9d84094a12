"""What lies in the repository, and what its set-up asks of a machine."""

import os
import re
import subprocess
import tomllib

from tests.house.rooms import ROOT

TOP = {
    "raymega", "tests", "workloads", "notebooks", "docs", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE",
    "Makefile", "constraints.txt", "pyproject.toml",
}  # fmt: skip


def tracked() -> list[str]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def test_nothing_else_stands_at_the_top():
    assert {name.split("/")[0] for name in tracked() if not name.startswith(".")} <= TOP


def test_what_set_up_and_runs_make_is_ignored():
    made = [".venv/x", "runs/x", "raymega/__pycache__/x", "raymega.egg-info/x", ".pytest_cache/x", ".hypothesis/x"]
    done = subprocess.run(["git", "check-ignore", *made], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == made


def test_the_pins_are_the_same_for_pip_and_uv():
    pins = re.findall(r"^\w+==\S+", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["uv"]["constraint-dependencies"] == pins


def test_set_up_refuses_an_old_python(tmp_path):
    old = tmp_path / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = -V ] && echo Python 3.9.1\nexit 1\n')
    old.chmod(0o755)
    for name in (".ci", "pyproject.toml", "constraints.txt"):
        subprocess.run(["cp", "-r", ROOT / name, tmp_path], check=True)
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "cat", "sha256sum", "cut", "dirname", "env"):
        (tools / tool).symlink_to(f"/usr/bin/{tool}")
    env = {"PATH": str(tools), "PYTHON": str(old), "HOME": os.environ["HOME"]}
    done = subprocess.run([tmp_path / ".ci" / "setup", "train"], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "is Python 3.9.1; raymega needs Python 3.11 or newer" in done.stderr


def test_decisions_are_numbered_without_gaps_and_stay_short():
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [record.name[:4] for record in records] == [f"{number:04d}" for number in range(1, len(records) + 1)]
    for number, record in enumerate(records, start=1):
        text = record.read_text()
        assert text.startswith(f"# {number}. "), record.name
        assert text.count("\n") <= 60, record.name
