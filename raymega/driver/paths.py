"""The paths of a config, as every process finds them wherever it runs; names of what ships, and URIs, stay.

here          runs -> /home/me/runs
in a job      runs is refused: the working directory is a copy of Ray's, and goes with the job
"""

import os
from pathlib import Path

from raymega.config.local_path import local_path
from raymega.config.schema import Blend, Config
from raymega.data.builtin import BUILTIN_CORPORA
from raymega.data.tokenizer import BUILTIN_TOKENIZERS
from raymega.errors import ConfigError, DataError

TOKENIZERS = ("byte", *BUILTIN_TOKENIZERS)


def with_absolute_paths(config: Config) -> Config:
    """The config with its paths as every process finds them, wherever it runs; names and URIs stay.

    Raises: ConfigError naming the key of a path that can be none.
    """
    data, run, checkpoint = config.data, config.run, config.checkpoint
    if isinstance(data.train, str):
        train: str | tuple[Blend, ...] = _absolute(data.train, key="data.train")
    else:
        train = tuple(part.model_copy(update={"path": _absolute(part.path, key="data.train")}) for part in data.train)
    begins = _absolute_or_none(run.init_from, key="run.init_from")
    return config.model_copy(
        update={
            "run": run.model_copy(update={"dir": _absolute(run.dir, key="run.dir"), "init_from": begins}),
            "data": data.model_copy(
                update={
                    "train": train,
                    "valid": _absolute_or_none(data.valid, key="data.valid"),
                    "tokenizer": _absolute(data.tokenizer, key="data.tokenizer", named=TOKENIZERS),
                }
            ),
            "checkpoint": checkpoint.model_copy(
                update={"path": _absolute_or_none(checkpoint.path, key="checkpoint.path")}
            ),
        }
    )


def _absolute_or_none(place: str | None, *, key: str) -> str | None:
    return None if place is None else _absolute(place, key=key)


def _absolute(place: str, *, key: str, named: tuple[str, ...] = BUILTIN_CORPORA) -> str:
    return place if place in named or "://" in place else str(local_path(place, key=key))


def refuse_relative(config: Config) -> None:
    """Refuse paths that a Ray job would look for in its working directory.

    Raises: ConfigError, DataError naming the key, and what may be meant.
    """
    run, data, checkpoint = config.run, config.data, config.checkpoint
    for key, place in (
        ("run.dir", run.dir), ("run.init_from", run.init_from), ("checkpoint.path", checkpoint.path),
    ):  # fmt: skip
        if place is not None and _is_relative(place):
            raise ConfigError(
                f"{key}: {place} is relative; under a Ray job that is a copy of Ray's, which goes with the job. "
                f"Use a directory that every node can see, such as {_at_home(place)}"
            )
    sources = (data.train,) if isinstance(data.train, str) else tuple(part.path for part in data.train)
    for key, places in (
        ("data.train", sources), ("data.valid", (data.valid,)), ("data.tokenizer", (data.tokenizer,)),
    ):  # fmt: skip
        for place in places:
            if place is not None and place not in (*BUILTIN_CORPORA, *TOKENIZERS) and _is_relative(place):
                raise DataError(
                    f"{key}: {place} is relative; under a Ray job the working directory is a copy of Ray's on the node "
                    f"of its entry point. Use the absolute path, such as {_at_home(place)}"
                )


def _at_home(place: str) -> str:
    """An absolute path to propose; `~` stays where no home directory is known."""
    return os.path.join(os.path.expanduser("~"), place)


def _is_relative(place: str) -> bool:
    return "://" not in place and not Path(place).is_absolute()
