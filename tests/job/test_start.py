"""A job that was begun with an interpreter without Ray becomes Ray's own, or names the one that it has."""

import os
import sys
from pathlib import Path

import pytest

from raymega.job import start
from raymega.job.start import (
    GCS,
    WORKER_COMMAND,
    become_rays_own,
    interpreter_of,
    is_here,
    raylet_above,
    said,
    take_address,
)

RAYLET = [
    "/ray/raylet", "--gcs-address=10.0.0.1:6379",
    "--python_worker_command=/env/bin/python /ray/setup_worker.py --x", "--y",
]  # fmt: skip


def process(proc: Path, pid: int, *words: str, parent: int) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "cmdline").write_text("\0".join(words))
    (proc / str(pid) / "stat").write_text(f"{pid} (a name) with) S {parent} 1 1")


def test_the_raylet_above_says_which_interpreter_is_rays_own_and_where_its_cluster_is(tmp_path: Path):
    process(tmp_path, 7, "sh", "-c", "python3 workloads/train.py", parent=5)
    process(tmp_path, 5, "ray::JobSupervisor", parent=3)
    process(tmp_path, 3, *RAYLET, parent=1)
    raylet = raylet_above(7, proc=tmp_path)
    assert (interpreter_of(raylet), said(raylet, GCS)) == ("/env/bin/python", "10.0.0.1:6379")


def test_without_a_raylet_above_there_is_none(tmp_path: Path):
    process(tmp_path, 7, "bash", parent=1)
    process(tmp_path, 1, "init", parent=0)
    assert raylet_above(7, proc=tmp_path) == raylet_above(99, proc=tmp_path) == ()
    assert interpreter_of(()) is None


def test_a_job_that_was_given_the_address_of_another_ray_takes_that_of_its_own(monkeypatch, capsys):
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:7000")
    take_address(None)
    assert os.environ["RAY_ADDRESS"] == "10.0.0.1:7000"
    take_address("10.0.0.1:6379")
    assert os.environ["RAY_ADDRESS"] == "10.0.0.1:6379"
    assert "is 10.0.0.1:7000, another Ray of this machine; the job is of 10.0.0.1:6379" in capsys.readouterr().out
    take_address("10.0.0.1:6379")
    assert capsys.readouterr().out == "", "it is the right one"


def test_this_process_becomes_rays_own_with_the_same_words(monkeypatch):
    became: list[tuple[str, list[str]]] = []
    monkeypatch.setattr(os, "execv", lambda file, words: became.append((file, words)))
    monkeypatch.setattr(sys, "orig_argv", ["python3", "-m", "raymega.job", "nano"])
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    with pytest.raises(SystemExit):  # execv does not return, but here it does
        become_rays_own("/bin/sh")
    assert became == [("/bin/sh", ["/bin/sh", "-m", "raymega.job", "nano"])]


def test_a_folder_of_rays_name_is_not_ray(tmp_path: Path, monkeypatch):
    (tmp_path / "no_such_ray").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not is_here("no_such_ray")
    assert is_here("ray")


@pytest.mark.parametrize("above", [None, "/no/such/python", sys.executable])
def test_a_process_that_cannot_become_it_names_its_interpreter_and_the_way_out(above: str | None, monkeypatch, capsys):
    monkeypatch.setattr(start, "NEEDED", "no_such_package")
    monkeypatch.setattr(start, "raylet_above", lambda pid: () if above is None else (f"{WORKER_COMMAND}{above} x.py",))
    with pytest.raises(SystemExit) as ended:
        start.main()
    assert ended.value.code == 4
    said = capsys.readouterr().err
    assert sys.executable in said
    assert "Activate its environment before `ray start`, or name its interpreter" in said
