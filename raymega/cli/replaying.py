"""What `raymega replay` shows and does: what a run was asked, as a script, or asked of another run right away.

runs/demo/journal --> lines --> a file of Python
                            `-> run = raymega.launch(..), run.pause(..), run.wait(..), run.set(..), ..
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import raymega
from raymega.config.rules import NAME, plain_name
from raymega.driver.finding import end_of
from raymega.driver.records.replay import heads, told
from raymega.driver.records.retelling import script_of
from raymega.driver.records.run_dir import RunDirectory, write_whole
from raymega.driver.records.script import Line, script_text
from raymega.errors import ClusterError, ConfigError, StateError


@dataclass(frozen=True, slots=True, kw_only=True)
class Retold:
    """A run told again. `run`: the one that is to be asked."""

    of: str
    run: RunDirectory
    lines: tuple[Line, ...]

    @property
    def text(self) -> str:
        return script_text(self.lines, of=self.of)


def retold(run: RunDirectory, *, name: str) -> Retold:
    """What `run` was asked, for a run `name` beside it.

    Raises: StateError if it has no journal yet; ConfigError for a name that is none.
    """
    if not NAME.fullmatch(name):
        raise ConfigError(f'--name: "{name}" cannot name a run. Use {plain_name(name)}.')
    known, config = heads(run.journal), run.read_config()
    if not known:
        raise StateError(f"{run.journal} holds no journal: the run has not begun. Wait for its first step.")
    lines = script_of(told(known, config=config), config=config, directory=str(run.path), name=name)
    return Retold(of=run.path.name, run=RunDirectory(path=run.path.parent / name), lines=lines)


def written(told_again: Retold, *, out: str) -> str:
    """Write the script; what was written. Raises: StateError naming the file."""
    write_whole(Path(out), told_again.text)
    calls = sum(bool(line.verb) for line in told_again.lines)
    return f"{out}: {calls} calls, to be run with Python"


def gone_through(told_again: Retold, *, tell: Callable[[str], None]) -> int:
    """Make the calls; the exit code of the run. Raises: ConfigError for a name that is taken."""
    if told_again.run.is_begun():
        raise ConfigError(f"--name: there is a run in {told_again.run.path} already. Choose another name.")
    run: Any = None  # Any: the first line launches it
    for line in told_again.lines:
        tell(str(line))
        run, said = _made(line, run=run) if line.verb else (run, "")
        if said:
            tell(f"    {said}")
    over = end_of(told_again.run)
    if over is None:
        raise ClusterError(f"run {told_again.run.path.name} is gone and did not say how it ended.")
    return int(over["exit_code"])


def _made(line: Line, *, run: Any) -> tuple[Any, str]:
    """Make one call: the run as it is then, and what it said."""
    match line.verb:
        case "launch":
            return raymega.launch(*line.words, **line.arguments), ""
        case "fork":
            of, *words = line.words
            return raymega.launch(raymega.attach(of).fork(*words, **line.arguments), background=True), ""
        case verb:
            said = getattr(run, verb)(*line.words, **line.arguments)
            return run, said if isinstance(said, str) else ""
