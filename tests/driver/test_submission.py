"""What is sent for a job, and the exit code that comes back; no cluster is asked."""

import logging
from types import SimpleNamespace

import pytest
from aiohttp import WSServerHandshakeError
from ray.job_submission import JobStatus
from requests.exceptions import ConnectionError as ConnectionLost
from requests.exceptions import JSONDecodeError

from raymega.config.load import load
from raymega.config.schema import Config
from raymega.driver import submission
from raymega.driver.process.outlasting import OutputLost
from raymega.driver.submission import ENDED, NO_AGENT, Job, exit_code_of, send_when_taken, submission_of
from raymega.errors import ClusterError, ConfigError


def config(**run: str) -> Config:
    return Config.model_validate({"run": {"dir": "/runs", **run}, "training": {"steps": 7}})


def test_what_is_sent_has_a_name_so_that_the_run_can_be_found_and_gone_on_with():
    sent = submission_of(config(name="demo"), resume="200")
    assert (sent.run, sent.directory, sent.id.startswith("raymega-demo-")) == ("demo", "/runs/demo", True)
    assert sent.entrypoint == "python3 -m raymega.job config.yaml --resume 200"
    assert load(sent.config, source="sent") == config(name="demo")
    drawn = submission_of(config())
    assert load(drawn.config, source="sent").run.name == drawn.run


def test_an_interpreter_that_is_named_is_taken():
    assert submission_of(config(), python="/my env/python").entrypoint.startswith("'/my env/python' -m raymega.job")


def test_a_path_that_a_job_would_not_find_is_refused_before_anything_is_sent():
    with pytest.raises(ConfigError, match=r"run\.dir: runs is relative"):
        submission_of(Config())


@pytest.mark.parametrize(
    ("status", "code", "said", "means"),
    [
        ("SUCCEEDED", 0, 0, 0),
        ("FAILED", 6, 6, 6),
        ("STOPPED", None, 75, 75),
        ("STOPPED", None, None, 143),
        ("FAILED", None, None, 4),
        ("SUCCEEDED", None, None, 0),
    ],
)
def test_the_exit_code_is_the_runs_own_also_where_ray_does_not_know_it(status, code, said, means):
    assert exit_code_of(status, code, said=said) == means


def test_the_end_of_a_run_is_read_from_what_it_prints():
    assert ENDED.findall("x\nrun demo ended with exit code 75: SIGTERM: stopped and saved\n  loss") == ["75"]


def test_an_address_where_nothing_answers_is_named(monkeypatch):
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")  # discard: nobody listens
    with pytest.raises(ClusterError, match=r"no job can be sent to http://127\.0\.0\.1:9: .*--address"):
        Job.submit(submission_of(config()), address="http://127.0.0.1:9", tell=print)


class Head:
    """A cluster that answers `refusals` before it takes a job; like Ray's client it notes each try."""

    def __init__(self, *refusals: str) -> None:
        self.refusals, self.taken = list(refusals), []

    def submit_job(self, **job: str) -> None:
        logging.getLogger("ray").info("Uploading package gcs://_ray_pkg_1.zip.")
        if self.refusals:
            raise RuntimeError(self.refusals.pop(0))
        self.taken.append(job)

    def get_address(self) -> str:
        return "http://head:8265"


def test_a_head_that_has_no_agent_yet_is_asked_again():
    head = Head(f"status code 500: {NO_AGENT} to submit job", f"status code 500: {NO_AGENT} to submit job")
    told: list[str] = []
    send_when_taken(head, tell=told.append, entrypoint="true")
    assert head.taken == [{"entrypoint": "true"}]
    assert told == ["http://head:8265 has no agent that starts jobs yet; it is asked for 60 s"], "once"


def test_a_head_that_never_has_an_agent_is_told_with_a_way_out():
    with pytest.raises(ClusterError, match=r"http://head:8265 has had no agent.* for 0 s.*dashboard_agent\.log"):
        send_when_taken(Head(*[f"{NO_AGENT} to submit job"] * 2), tell=print, limit_s=0.0, entrypoint="true")


def test_what_rays_client_notes_at_every_try_is_not_shown_and_what_others_note_later_is(monkeypatch, caplog):
    head = Head(NO_AGENT)
    monkeypatch.setattr(submission, "JobSubmissionClient", lambda address: head)
    with caplog.at_level(logging.INFO):
        Job.submit(submission_of(config()), address="http://head:8265", tell=print)
        assert (len(head.taken), caplog.messages) == (1, [])
        logging.getLogger("ray").info("later")
        assert caplog.messages == ["later"]


def test_any_other_refusal_is_not_asked_again():
    head = Head("status code 500: a job of that name is there", "never asked")
    with pytest.raises(RuntimeError, match="a job of that name"):
        send_when_taken(head, tell=print, entrypoint="true")
    assert head.refusals == ["never asked"]


class LostHead:
    """A job server that a follower loses: as it tails what the job prints, or as it asks how the job is."""

    def __init__(self, *, tailing: Exception | None = None, asking: Exception | None = None) -> None:
        self.tailing, self.asking = tailing, asking

    async def tail_job_logs(self, name: str):
        yield "step: 1  loss: 5.5\n"
        if self.tailing is not None:
            raise self.tailing

    def get_job_info(self, name: str):
        if self.asking is not None:
            raise self.asking
        return SimpleNamespace(status=JobStatus.SUCCEEDED, driver_exit_code=0)


def follow(head: LostHead, tell) -> int:
    job = Job(id="raymega-demo-1", address="http://head:8265", directory="/my runs/demo", client=head)
    return job.follow(tell)


@pytest.mark.parametrize(
    "head",
    [
        LostHead(asking=ConnectionLost("HTTPConnectionPool: Max retries exceeded\nwith url")),
        LostHead(asking=JSONDecodeError("Expecting value", "<html>", 0)),
        LostHead(asking=RuntimeError("Request failed with status code 404: job raymega-demo-1 does not exist")),
        LostHead(tailing=RuntimeError("WebSocket connection closed unexpectedly with close code 1006")),
        LostHead(tailing=WSServerHandshakeError(SimpleNamespace(real_url="http://head"), (), status=404)),
        LostHead(tailing=ConnectionRefusedError()),
    ],
    ids=["gone", "another page", "begun anew", "torn off", "no such job", "without words"],
)
def test_a_cluster_that_goes_while_its_job_is_followed_is_told_in_one_line_with_where_to_look(head: LostHead):
    told: list[str] = []
    with pytest.raises(ClusterError, match=r"^the cluster at http://head:8265 no longer answers \(.+\)") as lost:
        follow(head, told.append)
    assert lost.value.message.endswith("Where the run stands: raymega status '/my runs/demo'")
    assert (lost.value.exit_code, "\n" in lost.value.message, told) == (4, False, ["step: 1  loss: 5.5\n"])


def test_what_the_follower_cannot_print_is_no_fault_of_the_cluster():
    def tell(text: str) -> None:
        raise OutputLost(BrokenPipeError("nobody reads"))

    with pytest.raises(OutputLost):
        follow(LostHead(), tell)
