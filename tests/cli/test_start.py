"""Ctrl-C and SIGTERM while the command line is only loading, and an output that nobody takes."""

import signal
import subprocess
import sys

import pytest

SENT_TO_ITSELF = """
import os, sys
from raymega.cli.start import main

class WhileItLoads:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "raymega.cli.app":
            try:
                os.kill(os.getpid(), int(sys.argv[1]))
            finally:
                os.kill(os.getpid(), int(sys.argv[2]))

sys.meta_path.insert(0, WhileItLoads)
main()
"""


@pytest.mark.parametrize(
    ("sent", "code", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_while_it_loads_ends_with_one_line_and_its_code(sent: signal.Signals, code: int, told: str):
    for then in (0, int(sent)):  # 0 is no signal; the same one once more: both parts of what `timeout` sends
        command = [sys.executable, "-c", SENT_TO_ITSELF, str(int(sent)), str(then)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, done.stderr) == (code, f"raymega: {told}\n")


def test_a_ctrl_c_while_the_process_ends_is_no_fault_to_be_traced():
    at_the_end = "import atexit, os, signal; atexit.register(os.kill, os.getpid(), signal.SIGINT)\n"
    command = [sys.executable, "-c", at_the_end + SENT_TO_ITSELF, str(int(signal.SIGINT)), "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "raymega: interrupted\n")


def output_lost(place: str, words: str) -> tuple[int, str]:
    """The exit code of a shell's `raymega WORDS PLACE`, and what it says on stderr."""
    call = f'"{sys.executable}" -c "from raymega.cli.start import main; main()" {words} {place}'
    done = subprocess.run(
        ["bash", "-c", f"{call}; exit ${{PIPESTATUS[0]}}"], capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("words", ["--help", "config schema"], ids=["help", "a verb"])
@pytest.mark.parametrize(
    ("place", "ends"),
    [
        ("> /dev/full", (2, "raymega: standard output cannot be written: No space left on device\n")),
        (">&-", (2, "raymega: standard output cannot be written: Bad file descriptor\n")),
        ("| false", (141, "")),
    ],
)
def test_an_output_that_nobody_takes_ends_a_verb_with_a_line_at_most(place: str, ends: tuple[int, str], words: str):
    assert output_lost(place, words) == ends


@pytest.mark.parametrize("place", ["2>&1 | false", ">&- 2>&- <&-"])
def test_errors_that_nobody_takes_change_no_exit_code(place: str):
    assert output_lost(place, "trian") == (2, "")
