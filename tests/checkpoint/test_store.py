"""What every kind of storage must do: the same tests for a local directory and for S3."""

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pytest

from raymega.checkpoint.store import Entry, ObjectStore, join_uri, open_store, read_bytes, write_bytes
from raymega.errors import ConfigError


def test_a_file_is_there_whole_once_it_is_written(uri: str):
    store = open_store(uri)
    with store.create("step-4/a") as sink:
        sink.write(b"hello ")
        assert not [entry for entry in store.sub("step-4").list() if entry.name == "a"]
        sink.write(memoryview(b"world"))
    assert store.sub("step-4").list() == (Entry(name="a", is_dir=False, size_bytes=11),)
    assert store.list() == (Entry(name="step-4", is_dir=True, size_bytes=0),)


def test_a_file_whose_writing_broke_off_is_not_there(uri: str):
    store = open_store(uri)

    def write_half() -> None:
        with store.create("a") as sink:
            sink.write(b"hello")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        write_half()
    assert store.list() == ()


def test_a_file_is_replaced(uri: str):
    store = open_store(uri)
    write_bytes(store, "a", b"first")
    write_bytes(store, "a", b"second")
    assert read_bytes(store, "a", size_bytes=100) == b"second"


def test_a_range_is_read_and_ends_with_the_file(uri: str):
    store = open_store(uri)
    write_bytes(store, "a", bytes(range(100)))
    buffer = bytearray(10)
    with store.open("a") as source:
        assert source.read_into(memoryview(buffer), offset=50) == 10
        assert buffer == bytes(range(50, 60))
        assert source.read_into(memoryview(buffer), offset=95) == 5
        assert source.read_into(memoryview(buffer), offset=100) == 0


def test_what_is_not_there_is_empty_unreadable_and_deleted_without_ado(uri: str):
    store = open_store(uri)
    assert store.list() == ()
    store.delete("a")
    with pytest.raises(OSError, match="a"), store.open("a"):
        pass


def test_a_directory_is_deleted_only_when_it_is_empty(uri: str):
    store = open_store(uri)
    write_bytes(store, "step-4/a", b"x")
    store.delete("step-4")
    assert [entry.name for entry in store.list()] == ["step-4"]
    store.delete("step-4/a")
    store.delete("step-4")
    assert store.list() == ()


class ShortFileSystem:
    """An object store that loses the last byte of what it is given."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def open_output_stream(self, path: str) -> pa.NativeFile:
        self.sizes[path] = 10
        return pa.BufferOutputStream()

    def get_file_info(self, path: str) -> pafs.FileInfo:
        kind = pafs.FileType.File if path in self.sizes else pafs.FileType.NotFound
        return pafs.FileInfo(path, type=kind, size=self.sizes.get(path, -1))

    def delete_file(self, path: str) -> None:
        del self.sizes[path]


def test_an_object_that_is_short_after_its_upload_is_an_error_and_goes():
    fs = ShortFileSystem()
    store = ObjectStore(fs=fs, root="bucket", place="s3://bucket")
    with pytest.raises(OSError, match="s3://bucket/a has 10 bytes after 11 were written"):
        write_bytes(store, "a", b"hello world")
    assert fs.sizes == {}


def test_a_uri_of_no_storage_is_refused():
    with pytest.raises(ConfigError, match=r"ftp://host/x is no storage.*s3://"):
        open_store("ftp://user:secret@host/x")


def test_places_do_not_show_credentials():
    store = open_store("s3://key:secret@bucket/run?region=us-east-1&scheme=http")
    assert store.sub("step-4").place == "s3://bucket/run/step-4"


def test_a_file_uri_is_a_local_path(tmp_path: Path):
    assert open_store(f"file://{tmp_path}/a").place == f"{tmp_path}/a"
    assert join_uri("s3://b/run/?region=x", "step-4") == "s3://b/run/step-4?region=x"


def test_a_local_disk_says_what_is_free(tmp_path: Path):
    free = open_store(str(tmp_path / "not" / "yet")).free_bytes()
    assert free is not None
    assert free > 0
