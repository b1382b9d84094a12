"""A run whose output nobody takes any more: it goes on, and says once where it can be seen."""

import io
import sys

import pytest

from raymega.driver.process.outlasting import OutputLost, outlasting, tell
from raymega.driver.sinks.console import LineConsole
from raymega.driver.sinks.live_view import open_console
from tests.driver.runs import turns_of
from tests.driver.test_console import facts

SEEN_BY = "The run does without; to see it: raymega attach demo"


class Taking(io.StringIO):
    """Takes so many writes."""

    left = 3

    def write(self, text: str, /) -> int:
        self.left -= 1
        if self.left < 0:
            raise OSError(28, "No space left on device")
        return super().write(text)


def test_a_run_outlasts_its_output_and_says_so_once(capsys):
    out = Taking()
    console = open_console(facts(), t=1000.0, out=outlasting(out, follow="raymega attach demo"))
    for turn in turns_of():
        console.saw(turn)
    console.close()
    assert len(out.getvalue().splitlines()) >= 3
    said = "raymega: standard output cannot be written: No space left on device. "
    assert capsys.readouterr().err == f"{said}{SEEN_BY}\n"


def test_an_output_that_was_closed_from_the_beginning_takes_nothing():
    console = LineConsole(facts(), t=1000.0, out=outlasting(None, follow=""))
    console.note("anything")
    assert not outlasting(None, follow="").isatty()


def test_what_a_program_of_raymega_raises_of_a_lost_output_tells_the_cause(capsys):
    class Lost(io.StringIO):
        def write(self, text: str, /) -> int:
            raise OutputLost(BrokenPipeError(32, "Broken pipe"))

    print("a step", file=outlasting(Lost(), follow="raymega attach demo"))
    assert capsys.readouterr().err == f"raymega: standard output cannot be written: Broken pipe. {SEEN_BY}\n"


def test_an_error_that_cannot_be_told_harms_nothing(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        tell("something")
        tell("and more")


def test_this_guard_can_fail():
    full = Taking()
    full.left = 0
    with pytest.raises(OSError, match="No space left"):
        LineConsole(facts(), t=1000.0, out=full).note("x")
