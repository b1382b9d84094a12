"""Preparation on a real Ray: what many readers make is what one makes, and a fault leaves nothing."""

import filecmp
import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer

from raymega.data.manifest import load_manifest
from raymega.data.token_file import verify_files
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.data_prepare import prepare
from raymega.errors import ConfigError, DataError
from tests.data.corpora import prepare_here, text_of

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("local_ray")]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """One file of each kind, each in several spans."""
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_text("\n\n".join(f"Paragraph {i} of the text." for i in range(40_000)))
    (folder / "b.jsonl").write_text("".join(json.dumps({"text": f"line {i}"}) + "\n" for i in range(20_000)))
    pq.write_table(pa.table({"text": [f"row {i}" for i in range(900)]}), folder / "c.parquet", row_group_size=200)
    return folder


def test_many_readers_make_the_same_files_as_one(corpus: Path, tmp_path: Path) -> None:
    prepared = prepare((str(corpus),), out=str(tmp_path / "many"), tokenizer="byte", seq_len=64, valid_fraction=0.1)
    prepare_here([corpus], tmp_path / "one", seq_len=64, valid_fraction=0.1, shard_bytes=32 << 20)
    names = sorted(os.listdir(tmp_path / "one"))
    assert filecmp.cmpfiles(tmp_path / "one", tmp_path / "many", names, shallow=False) == (names, [], [])
    assert prepared.num_files == 3
    assert prepared.manifest == load_manifest(str(tmp_path / "one"))


def test_a_tokenizer_trained_on_the_way_comes_along(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare((str(corpus / "b.jsonl"),), out=str(out), tokenizer="train:300", seq_len=32)
    manifest = load_manifest(str(out))
    tokenizer = load_tokenizer(str(out / "tokenizer.json"))
    assert (manifest.tokenizer.vocab_size, manifest.tokenizer.fingerprint) == (300, tokenizer.fingerprint)
    verify_files(manifest, directory=str(out))


def test_a_fault_in_one_reader_is_told_as_it_was_and_leaves_nothing(corpus: Path, tmp_path: Path) -> None:
    with (corpus / "b.jsonl").open("a") as file:
        file.write("{nonsense\n")
    with pytest.raises(DataError, match=r"b\.jsonl line 20001 is no JSON"):
        prepare((str(corpus),), out=str(tmp_path / "out"), tokenizer="byte", seq_len=64)
    assert os.listdir(tmp_path) == ["in"]


def test_faults_of_the_command_are_told_together_before_any_reading(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"(?s)--seq-len 0.*--valid-fraction 1.5.*--out .* exists"):
        prepare(("nowhere",), out=str(tmp_path), tokenizer="byte", seq_len=0, valid_fraction=1.5)


def test_a_vocabulary_to_train_is_a_number(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Give for example train:4096"):
        prepare((str(corpus),), out=str(tmp_path / "out"), tokenizer="train:many", seq_len=8)


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    """A bucket of a real S3 server on the loopback: what to write behind its objects' URIs."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "testing")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        server.start()
        host, port = server.get_host_and_port()
        client = boto3.client("s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1")
        client.create_bucket(Bucket="corpus")
        for name, text in (("web/a.txt", "first\n\nfile"), ("web/b.jsonl", '{"text": "one"}\n'), ("web/x.bin", "?")):
            client.put_object(Bucket="corpus", Key=name, Body=text.encode())
        yield f"scheme=http&region=us-east-1&endpoint_override={host}:{port}"
        server.stop()


@pytest.mark.parametrize("place", ["web", "web/*", "**/*.*"])
def test_inputs_may_lie_in_s3(bucket: str, tmp_path: Path, place: str) -> None:
    prepare_here([f"s3://corpus/{place}?{bucket}"], tmp_path / "out")
    assert text_of(tmp_path / "out") == b"first\n\nfile\x1eone\x1e"


def test_readers_on_ray_reach_s3(bucket: str, tmp_path: Path) -> None:
    uri = f"s3://testing:testing@corpus/web/a.txt?{bucket}"
    prepare((uri,), out=str(tmp_path / "out"), tokenizer="byte", seq_len=8)
    assert text_of(tmp_path / "out") == b"first\n\nfile\x1e"


def test_a_missing_bucket_is_named_without_its_keys(bucket: str) -> None:
    with pytest.raises(DataError, match="s3://nowhere/web") as caught:
        prepare(("s3://testing:secret@nowhere/web?" + bucket,), out="never", tokenizer="byte", seq_len=8)
    assert "secret" not in str(caught.value)
