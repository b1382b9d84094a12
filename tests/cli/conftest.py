"""The command line in this process: what it printed, and the exit code it ended with."""

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from raymega.cli.app import main


@dataclass(frozen=True, kw_only=True)
class Ended:
    code: int
    out: str
    err: str


@pytest.fixture
def raymega(capsys, monkeypatch, tmp_path) -> Callable[..., Ended]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["raymega", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return Ended(code=int(ended.value.code or 0), out=printed.out, err=printed.err)

    return run
