"""Where the process of `raymega` begins: an answer to Ctrl-C and SIGTERM before anything else is loaded.

    Ctrl-C     KeyboardInterrupt    "raymega: interrupted"    130
    SIGTERM    SystemExit(15)       "raymega: terminated"     143

Ray's own handler for SIGTERM raises the same. Whatever is open is closed on the way out. A run that trains answers
both itself (`driver.client.signals`).
"""

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; ends the process with the exit code of what happened."""
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from raymega.cli.app import main as run

        run()
    except KeyboardInterrupt:  # while it loads; `run` makes it an exit code
        sys.exit(128 + signal.SIGINT)
    except SystemExit as end:
        if end.code != signal.SIGTERM:
            raise
        print("raymega: terminated", file=sys.stderr)
        sys.exit(128 + signal.SIGTERM)


def _interrupt(number: int, frame: FrameType | None) -> None:
    print("raymega: interrupted", file=sys.stderr)
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    sys.exit(number)
