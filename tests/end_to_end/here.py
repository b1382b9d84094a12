"""`raymega train` in this process, on the Ray that the tests share: for runs whose end is their result."""

from pathlib import Path

import yaml

from raymega.config.load import load
from raymega.driver.records.run_dir import RunDirectory
from raymega.driver.train import train
from tests.end_to_end.client import TINY


def run_here(folder: Path, *sets: str) -> RunDirectory:
    """Train the tiny model with `sets` to its end; where it has written."""
    text = yaml.safe_dump({**TINY, "run": {**TINY["run"], "dir": str(folder)}})
    assert train(load(text, source="tiny", overrides=sets), resume="none") == 0
    return RunDirectory(path=folder / "tiny")
