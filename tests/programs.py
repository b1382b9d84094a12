"""Tests that are programs of their own, since a process is connected to one Ray at a time."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from tests.house.rooms import ROOT

SHOWN = 6000  # characters of what a program that failed said last


def told_by(
    module: str, *words: object, limit_s: float, env: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], str]:
    """What `module` prints in its last line, as JSON, and all that it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, words)],
        cwd=ROOT, capture_output=True, text=True, timeout=limit_s, env={**os.environ, **(env or {})},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-SHOWN:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr
