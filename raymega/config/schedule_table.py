"""Reads the rows of a schedule's table, so that a run carries them and needs its file no more."""

from pathlib import Path

from raymega.errors import ConfigError


def rows_of_table(name: str) -> tuple[str, ...]:
    """The lines of a file that hold actions: no empty ones, no comments.

    Raises: ConfigError if it cannot be read.
    """
    try:
        lines = Path(name).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"parallelism.schedule: {name} cannot be read: {error}. Give a table of actions, a row a stage: "
            "0F0,0F1,0B0,0B1.",
            file=name,
        ) from error
    return tuple(line.strip() for line in lines if line.strip(" ,\t") and not line.lstrip().startswith("#"))
