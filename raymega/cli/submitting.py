"""What `raymega submit` says: the job that was taken, how to follow and to stop it, and how it ended.

job raymega-demo-3f9c1b is submitted to http://127.0.0.1:8265: run demo in /shared/runs/demo
"""

from collections.abc import Callable
from shlex import quote

from raymega.config.schema import Config
from raymega.driver.submission import Job, Submission, submission_of


def submitted(
    config: Config, *, address: str | None, resume: str, python: str | None, py_modules: tuple[str, ...],
    tell: Callable[[str], None],
) -> Job:  # fmt: skip
    """Send a run to a cluster, and say so. Raises: ClusterError, ConfigError, DataError."""
    submission = submission_of(config, resume=resume, python=python)
    job = Job.submit(submission, address=address, tell=tell, py_modules=py_modules)
    tell("\n".join(_lines(submission, job)))
    return job


def _lines(submission: Submission, job: Job) -> tuple[str, ...]:
    where, directory = f"--address {job.address} {submission.id}", quote(submission.directory)
    return (
        f"job {submission.id} is submitted to {job.address}: run {submission.run} in {submission.directory}",
        f"  follow   ray job logs -f {where}   (or raymega attach {directory})",
        f"  stop     ray job stop {where}   (or raymega stop {directory}); submit it again to go on",
    )
