"""Ctrl-C and SIGTERM while the command line is only loading."""

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
            os.kill(os.getpid(), int(sys.argv[1]))

sys.meta_path.insert(0, WhileItLoads)
main()
"""


@pytest.mark.parametrize(
    ("sent", "code", "told"), [(signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "terminated")]
)
def test_a_signal_while_it_loads_ends_with_one_line_and_its_code(sent: signal.Signals, code: int, told: str):
    command = [sys.executable, "-c", SENT_TO_ITSELF, str(int(sent))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (code, f"raymega: {told}\n")
