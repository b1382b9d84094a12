"""`raymega replay`: what is printed, what is written, and the calls that are made."""

from dataclasses import dataclass, field
from pathlib import Path

import pytest

import raymega as package
from raymega.cli.replaying import gone_through, retold
from raymega.control.events import SetAsked
from raymega.driver.records.run_dir import RunDirectory
from raymega.errors import ConfigError
from tests.driver.written import events
from tests.report.told_runs import told_run


@dataclass
class Asked:
    """A run that answers whatever it is asked."""

    asked: list[str] = field(default_factory=list)

    def __getattr__(self, verb: str):
        return lambda *words, **named: self.asked.append(f"{verb}{words}{named}") or f"{verb}: so be it"


@pytest.fixture
def demo(tmp_path: Path) -> RunDirectory:
    """A run in virtual time whose rate was set."""
    return told_run(tmp_path / "runs" / "demo", tell_at={4: SetAsked(request=1, lr=1e-4)})


def test_the_script_is_printed_or_written_and_nothing_is_done(raymega, demo):
    printed = raymega("replay", "demo")
    assert printed.code == 0
    assert f"raymega.launch('{demo.path}/config.yaml', run={{'name': 'demo-again'}}, background=True)" in printed.out
    assert "run.set(lr=0.0001)" in printed.out
    written = raymega("replay", "demo", "--name", "other", "--out", "other.py")
    assert (written.code, written.out) == (0, "other.py: 6 calls, to be run with Python\n")
    assert Path("other.py").read_text() == printed.out.replace("demo-again", "other")
    assert [path.name for path in demo.path.parent.iterdir()] == ["demo"]


def test_a_run_that_has_not_begun_is_refused(raymega, demo):
    for file in demo.journal.iterdir():
        file.unlink()
    ended = raymega("replay", "demo")
    assert (ended.code, "the run has not begun. Wait for its first step" in ended.err) == (5, True)


def test_going_makes_each_call_and_ends_with_the_exit_code_of_the_run(demo, monkeypatch):
    run, told, launched = Asked(), [], []
    monkeypatch.setattr(
        package, "launch", lambda *words, **named: launched.append((words, named)) or run, raising=False
    )
    again = retold(demo, name="again")
    ended = {"event": "RunEnded", "exit_code": 75, "reason": "stopped"}
    again.run.path.mkdir()
    again.run.events.write_text(events(ended))
    assert gone_through(again, tell=told.append) == 75
    assert len(launched) == 1
    assert [asked.partition("(")[0] for asked in run.asked] == ["pause", "wait", "set", "resume", "wait"]
    assert (told[2][:21], told[3]) == ("run.pause(after_step=", "    pause: so be it")


@pytest.mark.parametrize(("name", "way_out"), [("../x", "x"), ("a/b", "a-b"), ("a" * 65, "a" * 64)])
def test_a_name_that_is_none_is_refused_with_the_nearest(raymega, demo, name: str, way_out: str):
    ended = raymega("replay", "demo", "--name", name)
    assert (ended.code, f"cannot name a run. Use {way_out}." in ended.err) == (2, True)


def test_a_name_that_is_taken_is_refused_before_anything_is_launched(demo):
    with pytest.raises(ConfigError, match="Choose another name"):
        gone_through(retold(demo, name="demo"), tell=print)
