"""Whether a run has been left by the process that owns it."""

import math
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from raymega.driver.launch import HELD_UP_S, OWNER_LEASE_S
from raymega.driver.records.lock import Owner
from tests.driver.rig import Rig

HERE = Owner.of(psutil.Process(), controller="client of demo", until=math.inf)
ENDED, ELSEWHERE = replace(HERE, started=HERE.started - 60.0), replace(HERE, space="another boot", host="m2")


@pytest.mark.parametrize(
    ("owner", "lease_s", "left_after_s"),
    [
        (ENDED, OWNER_LEASE_S, OWNER_LEASE_S),
        (ELSEWHERE, OWNER_LEASE_S, OWNER_LEASE_S),
        (None, OWNER_LEASE_S, OWNER_LEASE_S),
        (HERE, OWNER_LEASE_S, HELD_UP_S),
        (HERE, 600.0, 600.0),
        (HERE, None, math.inf),
    ],
)
def test_a_client_that_a_busy_machine_holds_up_is_not_gone(owner, lease_s, left_after_s, tmp_path: Path):
    launch = Rig(tmp_path).launch(owner=owner, owner_lease_s=lease_s)
    assert not launch.is_left(silent_s=left_after_s if math.isinf(left_after_s) else left_after_s - 0.1)
    assert launch.is_left(silent_s=left_after_s + 0.1) == (left_after_s < math.inf)
