"""What a foreground launch comes back with; nothing is started here."""

from pathlib import Path

import pytest

import raymega


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def ends(monkeypatch: pytest.MonkeyPatch, *, code: int) -> None:
    """Have a run in the foreground end like this."""
    monkeypatch.setattr("raymega.notebook.launching.train", lambda config, **how: code)


def test_an_interrupted_run_ends_first_and_then_its_cell(monkeypatch, capsys):
    ends(monkeypatch, code=130)
    with pytest.raises(KeyboardInterrupt):
        raymega.launch("nano", run={"name": "demo"})
    assert capsys.readouterr().out == "run demo ended with exit code 130\n"


@pytest.mark.parametrize("code", [0, 6, 75])
def test_a_run_that_was_not_interrupted_is_there_to_be_looked_at_however_it_ended(monkeypatch, capsys, code: int):
    ends(monkeypatch, code=code)
    assert raymega.launch("nano", run={"name": "demo"}).name == "demo"
    assert f"exit code {code}" in capsys.readouterr().out
