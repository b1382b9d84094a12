"""The time in which one controller decides on a run. It begins, and thereby ends the one before, by one atomic act.

    journal/000001.jsonl      made by the first controller; only one can make a file of that name
    journal/000002.jsonl      made by the next: from here on the first is superseded

Who decides writes first and looks second, and sends only then:

    old     write decision --> is there a next file? no --> send        what it sends was written before the next file
    new     make next file --> read what the old one has written        was made, so the new one has read it

So a controller that was stopped, replaced and woken can send nothing that its successor does not know. Workers refuse
an older epoch besides, since the old one may be stopped between its look and its sending.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from raymega.driver.records.run_dir import cannot_write
from raymega.errors import Superseded


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenure:
    """One controller's; `epoch` counts all controllers of the run's directory from 1."""

    folder: Path
    epoch: int

    @classmethod
    def take(cls, folder: Path) -> "Tenure":
        """Take the next epoch in `folder`. Raises: StateError where nothing can be written."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_write(folder, error) from error
        epoch = max((int(file.stem) for file in journals(folder)), default=0)
        while True:
            epoch += 1
            taken = cls(folder=folder, epoch=epoch)
            try:
                os.close(os.open(taken.file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                continue  # another controller was quicker
            except OSError as error:
                raise cannot_write(taken.file, error) from error
            return taken

    @property
    def file(self) -> Path:
        """The journal of this controller."""
        return self.folder / f"{self.epoch:06d}.jsonl"

    def is_over(self) -> bool:
        """Has a newer controller taken the run over?"""
        return (self.folder / f"{self.epoch + 1:06d}.jsonl").exists()

    def check(self) -> None:
        """Raise Superseded if it is over."""
        if self.is_over():
            text = f"controller {self.epoch} has been replaced and gives no orders any more; the run goes on without it"
            raise Superseded(text, epoch=self.epoch + 1)


def journals(folder: Path) -> tuple[Path, ...]:
    """The journals of a run, by epoch."""
    return tuple(sorted(file for file in folder.glob("*.jsonl")))
