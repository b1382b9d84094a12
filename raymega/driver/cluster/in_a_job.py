"""What the entry point of a Ray job knows of its job from its environment; any other process is in none.

RAY_JOB_CONFIG_JSON_ENV_VAR    the job's runtime environment and metadata
RAY_JOB_STOP_WAIT_TIME_S       seconds from SIGTERM to SIGKILL; 3 where it is not set
"""

import json
import os
import sys
from typing import NoReturn

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
STOP_WAIT, STOP_WAIT_S = "RAY_JOB_STOP_WAIT_TIME_S", 3.0
LEFT_FOR_THE_END_S = 1.5  # of it: a SIGTERM is passed on half a second late at most, and there are words to be printed


def is_in_a_job() -> bool:
    """Is this process the entry point of a Ray job?"""
    return JOB in os.environ


def leaves_after_s() -> float | None:
    """Seconds from a SIGTERM until this process must be gone; None: it is in no job."""
    if not is_in_a_job():
        return None
    return max(0.0, float(os.environ.get(STOP_WAIT, STOP_WAIT_S)) - LEFT_FOR_THE_END_S)


def leave(exit_code: int) -> NoReturn:
    """End this process as it stands: to take leave of Ray takes seconds of a busy machine, and nothing here is left."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)


def brings_modules() -> bool:
    """Does the job itself bring modules to all nodes? Then Ray takes no others."""
    return "py_modules" in (json.loads(os.environ.get(JOB, "{}")).get("runtime_env") or {})
