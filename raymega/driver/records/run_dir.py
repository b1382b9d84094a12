"""The directory of a run: what lies where, and the files that are written once.

RUNDIR/config.yaml      as resolved
       metrics.jsonl    one line a committed step
       events.jsonl     what happened, and why what was done
       workers.json     where each worker's seconds went
       journal/         every decision, replayable
       logs/  tensorboard/  traces/  checkpoints/
       LOCK             who is writing here
"""

import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from raymega.config.load import load
from raymega.config.schema import Config
from raymega.errors import ConfigError, StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class RunDirectory:
    """A run's directory, by its absolute path."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def journal(self) -> Path:
        return self.path / "journal"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @property
    def traces(self) -> Path:
        return self.path / "traces"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def summary(self) -> Path:
        return self.path / "summary.txt"

    @property
    def workers(self) -> Path:
        return self.path / "workers.json"

    @property
    def lock(self) -> Path:
        return self.path / "LOCK"

    @property
    def launched(self) -> Path:
        """What the newest launch in the background was to do."""
        return self.logs / "launched.yaml"

    def is_begun(self) -> bool:
        """Was a run begun here? Raises: ConfigError where that cannot be seen."""
        try:
            return self.config.exists()
        except OSError as error:
            raise ConfigError(
                f"the run directory {self.path} cannot be entered: {error.strerror}. Set run.dir to a directory where "
                "you may write"
            ) from error

    def is_known(self) -> bool:
        """Was a run begun here, or launched at least? Raises: ConfigError where that cannot be seen."""
        return self.is_begun() or self.launched.exists()

    def create(self) -> None:
        """Make the directory and its rooms; those that exist are kept. Raises: ConfigError where it cannot be."""
        try:
            for folder in (self.path, self.journal, self.logs, self.traces):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the run directory {self.path} cannot be made: {error.strerror}. Set run.dir to a directory where "
                "you may write"
            ) from error

    def remove_if_unused(self) -> None:
        """Take back what `create` made, as far as nothing lies in it."""
        for folder in (self.journal, self.logs, self.traces, self.checkpoints, self.path):
            with suppress(OSError):  # it holds something, or was never made
                folder.rmdir()

    def read_config(self) -> Config:
        """The config as it was resolved when the run was started.

        Raises: StateError if there is none, or it cannot be read; ConfigError naming each of its faults.
        """
        try:
            return load(self.config.read_text(encoding="utf-8"), source=str(self.config))
        except FileNotFoundError as error:
            raise StateError(f"{self.path} has no config.yaml: {self._why_no_config()}") from error
        except (OSError, UnicodeDecodeError) as error:
            raise StateError(f"{self.config} cannot be read: {error}. Give access, or put it back") from error

    def _why_no_config(self) -> str:
        if not self.launched.exists():
            return "it is no run's directory, or its run is only starting"
        return f"its run has not begun; `raymega status {self.path.name}` says why"

    def read_launched(self) -> Config | None:
        """What the newest launch in the background was to do; None: there was none.

        Raises: ConfigError naming each of its faults.
        """
        if not self.launched.exists():
            return None
        return load(self.launched.read_text(encoding="utf-8"), source=str(self.launched))


def write_whole(file: Path, text: str) -> None:
    """Write a file all or nothing: readers see the old text or the new one. Raises: StateError naming the file."""
    try:
        handle, draft = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, file)
        except OSError:
            os.unlink(draft)
            raise
    except OSError as error:
        raise cannot_write(file, error) from error


def cannot_write(file: Path, error: OSError) -> StateError:
    """What to tell when a file of the run cannot be written."""
    return StateError(
        f"{file} cannot be written: {error.strerror}. Make room, give access, or name another place; a run that ends "
        "by this goes on from its newest checkpoint once it is started again",
        file=str(file),
    )
