"""A script of what a run is asked: calls as values, which can be printed as Python, or made.

    Line(verb="launch", words=("runs/demo/config.yaml",), ..)     run = raymega.launch('runs/demo/config.yaml', ..)
    Line(verb="set", arguments={"lr": 1e-4})                      run.set(lr=0.0001)
    Line(note="lr is 0.0001 after step 57")                       # lr is 0.0001 after step 57

A run that trains on cannot be asked anything at a certain step. So it is held there first:

    run.pause(after_step=57); run.wait(step=57)     run.set(lr=..)     run.step(43); run.wait(step=100)     ..
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Arguments = dict[str, Any]  # Any: whatever a verb takes
LAUNCH, FORK = "launch", "fork"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A call of a verb of `raymega` or of `run`; without a verb, a comment.

    Args:
        words: arguments without a name; of a fork, the run that it is of comes first.
        note: what a comment says.
    """

    verb: str = ""
    words: tuple[object, ...] = ()
    arguments: Arguments = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        match self.verb:
            case "":
                return f"# {' '.join(self.note.split())}"
            case "launch":
                return f"run = raymega.launch({_said(self.words, self.arguments)})"
            case "fork":
                forked = f"raymega.attach({self.words[0]!r}).fork({_said(self.words[1:], self.arguments)})"
                return f"run = raymega.launch({forked}, background=True)"
            case _:
                return f"run.{self.verb}({_said(self.words, self.arguments)})"


@dataclass(slots=True, kw_only=True)
class Script:
    """Lines that are written one after the other. `at`: where the run is held by then; None: it goes on by itself."""

    lines: list[Line] = field(default_factory=list)
    at: int | None = None

    def note(self, text: str) -> None:
        self.lines.append(Line(note=text))

    def call(self, verb: str, *words: object, **arguments: object) -> None:
        self.lines.append(Line(verb=verb, words=words, arguments=arguments))

    def launch(self, line: Line) -> None:
        """A run that goes by itself."""
        self.lines.append(line)
        self.at = None

    def hold(self, step: int) -> None:
        """Have the run stand after `step`, if it is not past that."""
        if self.at is None and step > 0:
            self.call("pause", after_step=step)
        elif self.at is not None and step > self.at:
            self.call("step", step - self.at)
        else:
            return
        self.call("wait", step=step)
        self.at = step

    def rewind(self, step: int) -> None:
        """A run that is held goes back, and is held there."""
        self.call("rewind", step=step)
        self.at = step

    def go_to_the_end(self) -> None:
        if self.at is not None:
            self.call("resume")
        self.call("wait")
        self.at = None


def script_text(lines: Iterable[Line], *, of: str) -> str:
    """The script as a file of Python. `of`: the run that is told again."""
    text = [
        f'"""Run {of} again: the same config, asked the same after the same steps; made by `raymega replay {of}`."""',
        "",
        "import raymega",
        "",
    ]
    for line in lines:
        text += ["", str(line)] if not line.verb and text[-1] and not text[-1].startswith("#") else [str(line)]
    return "\n".join(text) + "\n"


def _said(words: tuple[object, ...], arguments: Arguments) -> str:
    named = (f"{name}={value!r}" for name, value in arguments.items())
    return ", ".join([*map(repr, words), *named])
