"""A run as a Ray job: what is sent to a cluster over HTTP, and what comes back of it.

    config --> Submission    a name, the config as it was read, the command that the job runs
           --> Job           config.yaml as working directory, this package and modules of one's own beside it
    logs   <--               the controller's one line a step
    code   <--               the run's own exit code, which `ray job submit` itself only tells as 0 or 1

The command is a `python3` that gives way to Ray's own interpreter (`job.start`), unless one is named.
Source: Ray's job submission SDK, version 2.60.
"""

import asyncio
import logging
import os
import random
import re
import secrets
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote
from typing import Any

from aiohttp import ClientError
from ray.exceptions import RayError
from ray.job_submission import JobStatus, JobSubmissionClient
from requests import RequestException

import raymega
from raymega.config.load import to_yaml
from raymega.config.schema import Config
from raymega.driver.names import draw_name
from raymega.driver.paths import refuse_relative
from raymega.errors import ClusterError, ConfigError

PYTHON = "python3"
CONFIG = "config.yaml"
RUN_KEY = "raymega.run"
ADDRESS_VARIABLE = "RAY_API_SERVER_ADDRESS"  # Ray takes it before any address that it is given
ENDED = re.compile(r"run \S+ ended with exit code (\d+)")
STOPPED = 143
STATUS_LIMIT_S, LOOK_S = 30.0, 0.2
NO_AGENT = "No available agent"  # Ray's answer, after 10 s, while nobody at its head starts jobs
AGENT_LIMIT_S = 60.0
UNANSWERED = (ConnectionError, RequestException, ClientError, RuntimeError, RayError)  # of Ray's client and below it


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A run that may be sent. `id`: the job's name."""

    id: str
    run: str
    directory: str
    config: str
    entrypoint: str


def submission_of(config: Config, *, resume: str = "auto", python: str | None = None) -> Submission:
    """What is to be sent for `config`.

    Args:
        python: the interpreter to run under, as the cluster's nodes find it; None: Ray's own.
    Raises: ConfigError, DataError for a path that a job would not find.
    """
    refuse_relative(config)
    name = config.run.name or draw_name(Path(config.run.dir), dice=random.SystemRandom())
    named = config.model_copy(update={"run": config.run.model_copy(update={"name": name})})
    return Submission(
        id=f"raymega-{name}-{secrets.token_hex(3)}",
        run=name,
        directory=str(Path(config.run.dir) / name),
        config=to_yaml(named),
        entrypoint=join([python or PYTHON, "-m", "raymega.job", CONFIG, "--resume", resume]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that a cluster has taken. `directory`: of its run."""

    id: str
    address: str
    directory: str
    client: Any  # Any: Ray's client has no type

    @classmethod
    def submit(
        cls, submission: Submission, *, address: str | None, tell: Callable[[str], None],
        py_modules: tuple[str, ...] = (),
    ) -> "Job":  # fmt: skip
        """Send it; `tell`: what is waited for, in a line.

        Raises: ClusterError where no cluster answers, or it does not take the job.
        """
        if address is not None:
            os.environ[ADDRESS_VARIABLE] = address
        package = str(Path(raymega.__file__).parent)
        with _without_rays_notes(), _sending(address), tempfile.TemporaryDirectory(prefix="raymega-job-") as folder:
            (Path(folder) / CONFIG).write_text(submission.config, encoding="utf-8")
            client = JobSubmissionClient(address)
            send_when_taken(
                client,
                tell=tell,
                entrypoint=submission.entrypoint,
                submission_id=submission.id,
                metadata={RUN_KEY: submission.run},
                runtime_env={"working_dir": folder, "py_modules": [package, *py_modules], "excludes": ["__pycache__"]},
            )
            address = client.get_address()
            return cls(id=submission.id, address=address, directory=submission.directory, client=client)

    def follow(self, tell: Callable[[str], None]) -> int:
        """Pass on what the job prints until it is over; the run's exit code.

        Raises: ClusterError where the cluster no longer answers.
        """
        codes: list[int] = []

        async def tail() -> None:
            async for text in self.client.tail_job_logs(self.id):
                codes.extend(map(int, ENDED.findall(text)))
                tell(text)

        with _without_rays_notes(), self._answering():
            asyncio.run(tail())
            return exit_code_of(*self._over(), said=codes[-1] if codes else None)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        """What Ray's client raises once it is lost, as an error that says where to look."""
        try:
            yield
        except UNANSWERED as error:
            raise ClusterError(
                f"the cluster at {self.address} no longer answers ({_first_line(error)}). Where the run stands: "
                f"raymega status {quote(self.directory)}"
            ) from error

    def _over(self) -> tuple[str, int | None]:
        """Its status, once that is final: what it prints may end a moment before."""
        until = time.monotonic() + STATUS_LIMIT_S
        while True:
            info = self.client.get_job_info(self.id)
            if JobStatus(info.status).is_terminal() or time.monotonic() > until:
                return str(info.status.value), info.driver_exit_code
            time.sleep(LOOK_S)


def send_when_taken(
    client: Any, *, tell: Callable[[str], None], limit_s: float = AGENT_LIMIT_S, **job: Any
) -> None:  # Any: Ray's, untyped
    """Submit `job`; a cluster that has just come up answers for a while that it has no agent to start one.

    Such an answer means that nothing was begun, so that the same job may be sent again. It is told once.

    Raises: ClusterError where it has none for `limit_s`; else what Ray's client raises.
    """
    until, told = time.monotonic() + limit_s, False
    while True:
        try:
            client.submit_job(**job)
            return
        except RuntimeError as error:
            if NO_AGENT not in str(error):
                raise
            if time.monotonic() > until:
                raise ClusterError(
                    f"the cluster at {client.get_address()} has had no agent that starts jobs for {limit_s:.0f} s: its "
                    "head is not up yet, its agent has died, or another Ray on that machine, as a run starts one for "
                    "itself, has the agent's port. See logs/dashboard_agent.log of the head's Ray session "
                    "(/tmp/ray/session_latest); start the head again, for such a port with "
                    "--dashboard-agent-listen-port=0."
                ) from error
            if not told:
                tell(f"{client.get_address()} has no agent that starts jobs yet; it is asked for {limit_s:.0f} s")
                told = True
        time.sleep(LOOK_S)


def exit_code_of(status: str, code: int | None, *, said: int | None) -> int:
    """The exit code of a run whose job has this status.

    Args:
        code: of its entry point, where Ray knows it: not of a job that was stopped.
        said: what the run said last of its end.
    """
    if code is not None:
        return code
    if status == "STOPPED":
        return STOPPED if said is None else said
    return 0 if status == "SUCCEEDED" else ClusterError.exit_code


@contextmanager
def _sending(address: str | None) -> Iterator[None]:
    """What Ray's client raises while a job is sent, as an error that says what to do."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"the job cannot be sent: {error}. Mend what is named.") from error
    except UNANSWERED as error:
        where = address or os.environ.get(ADDRESS_VARIABLE) or os.environ.get("RAY_ADDRESS") or "this machine"
        raise ClusterError(
            f"no job can be sent to {where}: {_first_line(error)} Name the cluster's dashboard with "
            "--address http://HOST:8265; where it asks for a token, set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN."
        ) from error


@contextmanager
def _without_rays_notes() -> Iterator[None]:
    """Ray's client notes each package that it looks at, at every try, and how a connection was closed."""
    before = logging.root.manager.disable
    logging.disable(max(before, logging.INFO))
    try:
        yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)
