"""An object store that refuses or is gone: named within seconds."""

import time

import pytest
import torch

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.preflight import probe
from raymega.checkpoint.save import Saver, SaveResult, WriteFailed
from raymega.checkpoint.shard_writer import Commit
from raymega.checkpoint.state_item import StateItem
from raymega.checkpoint.store import open_store
from raymega.errors import StateError
from raymega.layout.shard_box import Box


def reason(uri: str) -> str:
    results: list[SaveResult] = []
    saver = Saver(worker="w3", store=open_store(uri), report=results.append)
    item = StateItem(name="x", kind="param", shape=(4,), box=Box.whole((4,)), tensor=torch.ones(4))
    saver.start([item], commit=Commit(run_id="tiny", step=1, generation=1), wait_s=0)
    assert saver.wait(30)
    assert isinstance(results[0], WriteFailed)
    return results[0].reason


def test_a_bucket_that_is_not_there_is_named(s3_uri: str):
    other = s3_uri.replace("s3://", "s3://no-")
    assert reason(other).startswith("w3 could not write to s3://no-test-a-bucket")
    assert "NO_SUCH_BUCKET" in reason(other)
    with pytest.raises(StateError, match=r"no checkpoint can be written to s3://no-test.* on .*NO_SUCH_BUCKET"):
        probe(open_store(other))


def test_a_server_that_is_gone_is_named_and_never_taken_for_an_empty_directory(s3_uri: str, s3_endpoint: str):
    gone, began = s3_uri.replace(s3_endpoint, "127.0.0.1:9"), time.monotonic()
    with pytest.raises(StateError, match=r"s3://test-a-server.* cannot be read on .*NETWORK_CONNECTION"):
        newest_complete(gone)
    assert time.monotonic() - began < 30


def test_the_endpoint_may_stand_in_the_environment(s3_uri: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{s3_endpoint}")
    assert probe(open_store(s3_uri.split("?")[0])).used_bytes == 0
