import multiprocessing
from dataclasses import replace

import pytest

from raymega.driver.measuring_passes import SHAPES, fitted_shares, measured_passes, predicted_passes
from raymega.plan.calibration import REACHED
from raymega.plan.hardware import CPU_CORE


def test_shares_are_found_again_from_the_passes_that_they_predict() -> None:
    true = replace(REACHED, matmul_share=0.8, memory_share=1.7, pass_s=2e-4)
    found = fitted_shares(CPU_CORE, measured_s=predicted_passes(CPU_CORE, constants=true))
    assert (found.matmul_share, found.memory_share) == pytest.approx((0.8, 1.7), rel=0.03)
    assert found.pass_s == pytest.approx(2e-4, rel=0.2)


@pytest.mark.soak
def test_passes_of_neighbours_are_measured_and_leave_nothing() -> None:
    found = measured_passes(2)
    assert len(found) == 4 * len(SHAPES)
    assert all(1e-5 < seconds < 10 for seconds in found)
    assert multiprocessing.active_children() == []
