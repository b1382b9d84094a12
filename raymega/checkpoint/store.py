"""Files of a checkpoint on any storage, each all or nothing: there whole under its name, or not there.

    open_store("/runs/a/checkpoints")        LocalStore    temporary name, fsync, rename, fsync of the directory
    open_store("s3://bucket/a/checkpoints")  ObjectStore   upload, then compare the size; an object appears whole
                                                           (s3, gs, abfs and whatever else pyarrow.fs reads)

Paths are relative to the store's root, with `/`. The endpoint of an S3 other than Amazon's stands in the URI
(`?endpoint_override=host:port&scheme=http&region=...`) or in AWS_ENDPOINT_URL; credentials come from the environment.
Every failure of the storage is an OSError.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from errno import ELOOP, ENOENT, ENOTDIR
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.fs as pafs

from raymega.config.local_path import local_path
from raymega.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A name in a directory; `size_bytes` of a directory is 0."""

    name: str
    is_dir: bool
    size_bytes: int


class Sink(Protocol):
    """A file being written."""

    def write(self, data: bytes | memoryview, /) -> object: ...


class Source(Protocol):
    """A file being read."""

    def read_into(self, buffer: memoryview, *, offset: int) -> int:
        """Fill `buffer` from `offset` (bytes); how many there were, fewer only at the end of the file."""


class Store(Protocol):
    """A directory of files, wherever it is."""

    @property
    def place(self) -> str:
        """Where it is, for people: without credentials."""

    def sub(self, name: str) -> "Store":
        """The store of a directory in it."""

    def create(self, path: str) -> AbstractContextManager[Sink]:
        """Write a file; it appears under its name, durable, when the block ends, and not if the block raises."""

    def open(self, path: str) -> AbstractContextManager[Source]: ...

    def list(self) -> tuple[Entry, ...]:
        """What lies directly in it, by name; empty where there is no such directory."""

    def delete(self, path: str) -> None:
        """Remove a file, or a directory if it is empty; nothing happens where there is none."""

    def free_bytes(self) -> int | None:
        """Bytes that can still be written; None where the storage has no such bound."""


def open_store(uri: str) -> Store:
    """The store at a path or URI; it need not exist. Raises: ConfigError for one that no storage has."""
    if "://" not in uri:
        return LocalStore(local_path(uri, key="checkpoints"))
    try:
        found, root = pafs.FileSystem.from_uri(uri)
    except (pa.ArrowException, ValueError) as error:
        raise ConfigError(
            f"{_shown(uri)} is no storage: {error}. Use a path, s3://..., gs://... or abfs://..."
        ) from error
    if isinstance(found, pafs.LocalFileSystem):
        return LocalStore(Path(root))
    return ObjectStore(fs=found, root=root, place=_shown(uri))


def join_uri(uri: str, name: str) -> str:
    """The path or URI of `name` below `uri`; a query stays at the end.

    >>> join_uri("s3://bucket/run?region=x", "step-40"), join_uri("/runs/a", "step-40")
    ('s3://bucket/run/step-40?region=x', '/runs/a/step-40')
    """
    if "://" not in uri:
        return f"{uri.rstrip('/')}/{name}"
    parts = urlsplit(uri)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def _shown(uri: str) -> str:
    parts = urlsplit(uri)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def read_bytes(store: Store, path: str, *, size_bytes: int) -> bytes:
    """The first `size_bytes` of a file, or all there are."""
    buffer = memoryview(bytearray(size_bytes))
    with store.open(path) as source:
        return bytes(buffer[: source.read_into(buffer, offset=0)])


def write_bytes(store: Store, path: str, data: bytes) -> None:
    """Write a whole file."""
    with store.create(path) as sink:
        sink.write(data)


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A directory of a mounted file system."""

    root: Path

    @property
    def place(self) -> str:
        return str(self.root)

    def sub(self, name: str) -> "LocalStore":
        return LocalStore(self.root / name)

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.tmp{secrets.token_hex(4)}")
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
        for directory in (target.parent, target.parent.parent):
            _fsync_directory(directory)

    @contextmanager
    def open(self, path: str) -> Iterator[Source]:
        with open(self.root / path, "rb") as file:
            yield _LocalSource(file.fileno())

    def list(self) -> tuple[Entry, ...]:
        try:
            found = sorted(os.scandir(self.root), key=lambda entry: entry.name)
        except OSError as error:
            if error.errno not in (ENOENT, ENOTDIR, ELOOP):
                raise
            return ()
        return tuple(map(_entry, found))

    def delete(self, path: str) -> None:
        target = self.root / path
        if not target.is_dir():
            target.unlink(missing_ok=True)
        elif not any(target.iterdir()):
            target.rmdir()

    def free_bytes(self) -> int | None:
        there = next(path for path in (self.root, *self.root.parents) if path.exists())
        facts = os.statvfs(there)
        return facts.f_bavail * facts.f_frsize


def _entry(found: os.DirEntry[str]) -> Entry:
    """A link that leads back to itself stands for an empty directory: nothing can be read through it."""
    try:
        is_dir = found.is_dir()
    except OSError as error:
        if error.errno != ELOOP:
            raise
        is_dir = True
    size_bytes = 0 if is_dir else found.stat(follow_symlinks=False).st_size
    return Entry(name=found.name, is_dir=is_dir, size_bytes=size_bytes)


@dataclass(frozen=True, slots=True)
class _LocalSource:
    descriptor: int

    def read_into(self, buffer: memoryview, *, offset: int) -> int:
        done = 0
        while done < len(buffer) and (got := os.preadv(self.descriptor, [buffer[done:]], offset + done)):
            done += got
        return done


def _fsync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectStore:
    """A prefix of a bucket, through pyarrow.fs."""

    fs: pafs.FileSystem
    root: str
    place: str

    def sub(self, name: str) -> "ObjectStore":
        return ObjectStore(fs=self.fs, root=f"{self.root}/{name}", place=f"{self.place}/{name}")

    @contextmanager
    def create(self, path: str) -> Iterator[Sink]:
        counted = _Counted(self.fs.open_output_stream(f"{self.root}/{path}"))
        complete = False
        try:
            with counted.stream:
                yield counted
            there = self.fs.get_file_info(f"{self.root}/{path}").size
            if there != counted.size_bytes:
                raise OSError(f"{self.place}/{path} has {there} bytes after {counted.size_bytes} were written")
            complete = True
        finally:
            if not complete:  # closing the stream has uploaded what there was
                self.delete(path)

    @contextmanager
    def open(self, path: str) -> Iterator[Source]:
        with self.fs.open_input_file(f"{self.root}/{path}") as file:
            yield _ObjectSource(file)

    def list(self) -> tuple[Entry, ...]:
        found = self.fs.get_file_info(pafs.FileSelector(self.root, allow_not_found=True))
        entries = (
            Entry(name=info.base_name, is_dir=info.type == pafs.FileType.Directory, size_bytes=info.size or 0)
            for info in found
        )
        return tuple(sorted(entries, key=lambda entry: entry.name))

    def delete(self, path: str) -> None:
        target = f"{self.root}/{path}"
        kind = self.fs.get_file_info(target).type
        if kind == pafs.FileType.File:
            self.fs.delete_file(target)
        elif kind == pafs.FileType.Directory and not self.sub(path).list():
            self.fs.delete_dir(target)

    def free_bytes(self) -> int | None:
        return None


@dataclass(slots=True)
class _Counted:
    stream: pa.NativeFile
    size_bytes: int = 0

    def write(self, data: bytes | memoryview, /) -> object:
        self.size_bytes += len(data)
        return self.stream.write(data)


@dataclass(frozen=True, slots=True)
class _ObjectSource:
    file: pa.NativeFile

    def read_into(self, buffer: memoryview, *, offset: int) -> int:
        self.file.seek(offset)
        done = 0
        while done < len(buffer) and (got := self.file.readinto(buffer[done:])):
            done += got
        return done
