"""An S3 server process for as long as the tests of this room run, on loopback."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator

import boto3
import pytest

_CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
}  # fmt: skip


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """host:port of moto's server."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    try:
        lines = (re.search(r"http://(127\.0\.0\.1:\d+)", line) for line in server.stderr)
        endpoint = next(match[1] for match in lines if match)
        drain = threading.Thread(target=server.stderr.read, daemon=True)  # else the server blocks on a full pipe
        drain.start()
        yield endpoint
    finally:
        server.kill()
        server.wait()
    drain.join(10)


@pytest.fixture
def s3_uri(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """An empty prefix of a bucket of its own."""
    for name, value in _CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    bucket = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[:60].strip("-")
    boto3.client("s3", endpoint_url=f"http://{s3_endpoint}").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/run/checkpoints?endpoint_override={s3_endpoint}&scheme=http&region=us-east-1"


@pytest.fixture(params=["local", "s3"])
def uri(request: pytest.FixtureRequest) -> str:
    """A directory of checkpoints that does not exist yet, on each kind of storage."""
    if request.param == "local":
        return str(request.getfixturevalue("tmp_path") / "run" / "checkpoints")
    return str(request.getfixturevalue("s3_uri"))


@pytest.fixture(autouse=True)
def no_writer_stays() -> Iterator[None]:
    yield
    for thread in threading.enumerate():
        if thread.name == "checkpoint":
            thread.join(10)
            assert not thread.is_alive(), "a background writer outlived its test"
