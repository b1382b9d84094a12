"""What `raymega submit` says of the job that a cluster has taken."""

from types import SimpleNamespace

from ray.job_submission import JobStatus

from raymega.driver.submission import Job


class FakeJobs:
    """A cluster's job server that has run the job already."""

    async def tail_job_logs(self, name: str):
        yield "step: 1  loss: 5.5\n"
        yield "run demo ended with exit code 75: SIGTERM: stopped and saved at step 3\n"

    def get_job_info(self, name: str):
        return SimpleNamespace(status=JobStatus.STOPPED, driver_exit_code=None)


def test_a_job_is_named_with_how_to_follow_and_stop_it_and_followed_to_the_runs_own_exit_code(raymega, monkeypatch):
    def submit(submission, *, address, tell, py_modules):
        return Job(id=submission.id, address=address, directory=submission.directory, client=FakeJobs())

    monkeypatch.setattr(Job, "submit", submit)
    words = ["--address", "http://head:8265", "--set", "run.dir=/shared/my runs", "--set", "run.name=demo"]
    ended = raymega("submit", "nano", *words)
    assert ended.code == 0
    assert "is submitted to http://head:8265: run demo in /shared/my runs/demo" in ended.out
    assert "ray job logs -f --address http://head:8265 raymega-demo-" in ended.out
    assert ended.out.count("'/shared/my runs/demo'") == 2, "to be typed as they stand"
    followed = raymega("submit", "nano", *words, "--follow")
    assert (followed.code, "step: 1  loss: 5.5" in followed.out) == (75, True)
