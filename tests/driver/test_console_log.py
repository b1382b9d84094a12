"""What is told of a launch in the background that came to nothing: of the newest one, the error first of all."""

from pathlib import Path

import pytest

from raymega.driver.records.console_log import NO_WORD, begin_console, last_words
from raymega.driver.records.run_dir import RunDirectory

LINES = "step: 0  driver: starting a local Ray\nwarning\nwarning\nwarning\nwarning\nwarning\n"


@pytest.mark.parametrize(
    ("printed", "told"),
    [
        ((), NO_WORD),
        (("",), NO_WORD),
        ((f"{LINES}raymega: ClusterError: no Ray\nat exit\n",), "ClusterError: no Ray"),
        ((LINES,), "\n".join(["warning"] * 5)),
        (("raymega: ClusterError: no Ray\n", ""), NO_WORD),
        (("raymega: ClusterError: no Ray\n", "loading\n"), "loading"),
    ],
)
def test_a_launch_is_told_by_its_error_or_its_last_lines_and_none_by_an_earlier_ones(
    tmp_path: Path, printed: tuple[str, ...], told: str
):
    run = RunDirectory(path=tmp_path / "demo")
    run.create()
    for text in printed:
        with begin_console(run) as file:
            file.write(text.encode())
    assert last_words(run) == told
