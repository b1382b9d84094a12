"""A run as a Ray job: it is stopped, goes on when it is submitted again, fails with its code, and leaves nothing."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from ray.job_submission import JobSubmissionClient

from raymega.cli.watching import followed, log_text
from raymega.config.load import load
from raymega.driver.finding import end_of
from raymega.driver.records.json_lines import read_lines
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.submission import ADDRESS_VARIABLE, Job, submission_of
from tests.end_to_end.client import TINY
from tests.house.rooms import ROOT
from tests.job.cluster import LIMIT_S, LOOK_S, JobCluster
from tests.waiting import eventually

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(900)]  # 60 s of processor time: a busy machine
OURS = ("raymega.job", "workloads/train.py", "ControllerActor", "WorkerActor")
HERE = {"working_dir": str(ROOT)}


@pytest.fixture
def cluster() -> Iterator[JobCluster]:
    begun = JobCluster.up()
    yield begun
    begun.close()


def test_jobs_stop_go_on_fail_and_succeed_as_ray_says_and_leave_nothing(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv(ADDRESS_VARIABLE, cluster.dashboard)
    run, jobs = RunDirectory(path=tmp_path / "runs" / "tiny"), JobSubmissionClient(cluster.dashboard)
    config = tmp_path / "tiny.yaml"
    config.write_text(yaml.safe_dump(TINY | {"parallelism": {}, "run": TINY["run"] | {"dir": str(tmp_path / "runs")}}))
    submit_by_ray(cluster, "first", "python3", "workloads/train.py", str(config))
    jobs.submit_job(entrypoint=f"{sys.executable} workloads/train.py nano", submission_id="bad", runtime_env=HERE)
    eventually(lambda: steps(run) >= 3 or jobs.get_job_status("first").is_terminal(), limit_s=LIMIT_S, look_s=LOOK_S)
    assert steps(run) >= 3, jobs.get_job_logs("first")
    assert "of 100000" in next(followed(str(run.path)))
    log_text(str(run.path), rank=0, tell=print)  # refuses a rank that there is not

    jobs.stop_job("first")
    eventually(lambda: not run.lock.exists(), limit_s=LIMIT_S, look_s=LOOK_S)
    eventually(lambda: cluster.processes(*OURS) == [], limit_s=LIMIT_S, look_s=LOOK_S)
    reached = steps(run)
    assert (end_of(run)["exit_code"], saved(run)) == (75, [reached])
    assert status(jobs, "first") == "STOPPED"
    assert "going on with Ray's own" in jobs.get_job_logs("first")

    assert status(jobs, "bad") == "FAILED"
    assert jobs.get_job_info("bad").driver_exit_code == 2
    assert "run.dir: runs is relative" in jobs.get_job_logs("bad")

    sent = submission_of(load(config.read_text(), source="tiny"))
    again = Job.submit(sent, address=cluster.dashboard, tell=print)
    eventually(lambda: steps(run) > reached, limit_s=LIMIT_S, look_s=LOOK_S)
    stop(cluster, run)
    told: list[str] = []
    assert again.follow(told.append) == 0
    assert f"training goes on after step {reached}" in "".join(told)
    assert status(jobs, again.id) == "SUCCEEDED"
    eventually(lambda: cluster.processes(*OURS) == [], limit_s=LIMIT_S, look_s=LOOK_S)
    assert (saved(run)[-1], run.lock.exists()) == (steps(run), False)


def submit_by_ray(cluster: JobCluster, name: str, *entrypoint: str) -> None:
    ray = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", cluster.dashboard]
    how = ["--no-wait", "--submission-id", name, "--working-dir", str(ROOT), "--", *entrypoint]
    subprocess.run([*ray, *how], env=cluster.env, check=True, timeout=LIMIT_S, stdout=subprocess.DEVNULL)


def status(jobs: JobSubmissionClient, name: str) -> str:
    """How a job ended, once it has."""
    eventually(lambda: jobs.get_job_status(name).is_terminal(), limit_s=LIMIT_S, look_s=LOOK_S)
    return jobs.get_job_status(name).value


def stop(cluster: JobCluster, run: RunDirectory) -> None:
    command = [str(Path(sys.executable).parent / "raymega"), "stop", str(run.path)]
    env = cluster.env | {"RAY_ADDRESS": cluster.address, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=env, check=True, timeout=LIMIT_S)


def steps(run: RunDirectory) -> int:
    return max((line["step"] for line in read_lines(run.metrics)), default=0)


def saved(run: RunDirectory) -> list[int]:
    return sorted(int(path.parent.name.removeprefix("step-")) for path in run.checkpoints.glob("step-*/manifest.json"))
