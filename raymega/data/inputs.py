"""Which files an input means, and in which order: a file, a directory, a glob, here or behind a URI.

    corpus.txt   dir/   'dir/**/*.jsonl.gz'   's3://bucket/dir/*.parquet?region=eu-west-1&endpoint_override=host:port'

Everything goes through pyarrow.fs, so that local and remote inputs obey one set of rules: sorted by path, hidden names
left out, `*` within one directory, `**` across. Credentials of s3:// come from the environment (AWS_ACCESS_KEY_ID,
AWS_SECRET_ACCESS_KEY, AWS_PROFILE) as usual; they never appear in a message.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal
from urllib.parse import urlsplit

from pyarrow import ArrowInvalid, fs

from raymega.config.local_path import local_path
from raymega.errors import ConfigError, DataError

Kind = Literal["txt", "jsonl", "parquet"]

KINDS: dict[str, Kind] = {
    ".txt": "txt", ".text": "txt", ".md": "txt", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
    ".pq": "parquet",
}  # fmt: skip
COMPRESSED = (".gz", ".zst", ".bz2")


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFile:
    """One file. `root` names the file system (empty: this machine's), `path` the file in it."""

    root: str
    path: str
    kind: Kind
    size_bytes: int

    @property
    def compressed(self) -> bool:
        return self.path.endswith(COMPRESSED)

    def file_system(self) -> fs.FileSystem:
        return _open_root(self.root)

    def __str__(self) -> str:
        return f"{urlsplit(self.root).scheme}://{self.path}" if self.root else self.path


def expand(inputs: Sequence[str]) -> tuple[InputFile, ...]:
    """The files of all inputs, each input's sorted by path, in the order the inputs were given.

    Raises:
        DataError: an input does not exist, cannot be read, or holds no file of a known kind.
        ConfigError: a single file whose kind its name does not tell.
    """
    files = [file for text in inputs for file in _expand(text)]
    if not files:
        raise ConfigError("there is no input. Give files, directories, globs or URIs of txt, jsonl or parquet.")
    return tuple(files)


def kind_of(path: str) -> Kind | None:
    """What a file holds, by its name; a compressed parquet is none."""
    stem, suffix = os.path.splitext(path)
    if suffix in COMPRESSED:
        kind = KINDS.get(os.path.splitext(stem)[1].lower())
        return None if kind == "parquet" else kind
    return KINDS.get(suffix.lower())


def _expand(text: str) -> list[InputFile]:
    root, path = _root_and_path(text)
    base = path if not root and os.path.exists(path) else _without_glob(path)
    try:
        info = _open_root(root).get_file_info(base)
        inside = _inside(root, base) if info.type == fs.FileType.Directory else []
    except (OSError, ArrowInvalid, ValueError) as error:
        reason = str(error).replace(urlsplit(root).netloc, "") if root else str(error)
        raise DataError(
            f"{_shown(root, path)} cannot be read: {reason}. Check the name, the permissions, and for s3:// the AWS_ "
            "variables and ?endpoint_override=.",
            file=_shown(root, path),
        ) from None  # its text may hold the credentials of the URI
    if info.type == fs.FileType.NotFound:
        raise DataError(
            f"{_shown(root, path)} does not exist. Give an existing file, directory or glob.", file=_shown(root, path)
        )
    if info.type == fs.FileType.File:
        return [_readable(_single(root, info))]
    files = [
        InputFile(root=root, path=entry.path, kind=kind, size_bytes=entry.size)
        for entry in inside
        if (kind := kind_of(entry.path)) and (base == path or _matches(entry.path, path))
    ]
    if not files:
        raise DataError(
            f"{_shown(root, path)} holds no file of a known kind. Known are {' '.join(KINDS)}, and txt and jsonl with "
            f"{' '.join(COMPRESSED)}.",
            file=_shown(root, path),
        )
    return [_readable(file) for file in files]


def _readable(file: InputFile) -> InputFile:
    """The file, unless it is one of this machine's that this user may not read."""
    if not file.root and not os.access(file.path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise DataError(f"{file} may not be read by this user. Give read permission to it.", file=str(file))
    return file


def _single(root: str, info: fs.FileInfo) -> InputFile:
    kind = kind_of(info.path)
    if kind is None:
        raise ConfigError(
            f"{_shown(root, info.path)} is of no known kind. Rename it to end in one of {' '.join(KINDS)}; "
            f"txt and jsonl may also end in {' '.join(COMPRESSED)}.",
            file=_shown(root, info.path),
        )
    return InputFile(root=root, path=info.path, kind=kind, size_bytes=info.size)


def _inside(root: str, base: str) -> list[fs.FileInfo]:
    """The files under a directory, sorted by path, less those that are hidden."""
    entries = _open_root(root).get_file_info(fs.FileSelector(base, recursive=True))
    shown = [e for e in entries if e.type == fs.FileType.File and not _hidden(e.path[len(base) :])]
    return sorted(shown, key=lambda entry: entry.path)


def _hidden(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _root_and_path(text: str) -> tuple[str, str]:
    """The file system's own URI (nothing but scheme, host and options) and the path in it."""
    if "://" not in text:
        return "", os.path.abspath(local_path(text, key="an input"))
    scheme, rest = text.split("://", 1)
    place, _, query = rest.partition("?") if not any(c in rest.partition("?")[0] for c in "*[") else _glob_query(rest)
    authority, _, path = place.partition("/")
    if scheme == "file":
        return "", "/" + path
    bucket = authority.rpartition("@")[2]
    root = f"{scheme}://{authority}" + (f"?{query}" if query else "")
    return root, f"{bucket}/{path}".rstrip("/")


def _glob_query(rest: str) -> tuple[str, str, str]:
    """In a glob, only a `?` with a `name=` behind it begins the options."""
    place, mark, query = rest.rpartition("?")
    return (place, mark, query) if "=" in query else (rest, "", "")


def _open_root(root: str) -> fs.FileSystem:
    if not root:
        return fs.LocalFileSystem()
    return fs.FileSystem.from_uri(root)[0]


def _without_glob(path: str) -> str:
    """The longest directory of `path` without a `*`, `?` or `[`."""
    parts = path.split("/")
    plain = next((i for i, part in enumerate(parts) if any(c in part for c in "*?[")), len(parts))
    return "/".join(parts[:plain]) or "/"


def _matches(path: str, pattern: str) -> bool:
    """Whether a path matches a glob, part by part; `**` stands for any number of parts."""

    def match(parts: list[str], globs: list[str]) -> bool:
        if not globs:
            return not parts
        if globs[0] == "**":
            return any(match(parts[i:], globs[1:]) for i in range(len(parts) + 1))
        return bool(parts) and fnmatchcase(parts[0], globs[0]) and match(parts[1:], globs[1:])

    return match(path.split("/"), pattern.split("/"))


def _shown(root: str, path: str) -> str:
    return f"{urlsplit(root).scheme}://{path}" if root else path
