import pytest

from raymega.config.rules import faults_of
from raymega.config.schema import CalendarEntry
from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.planner import plan_for
from raymega.plan.resize import as_mesh, on_devices
from tests.plan.test_planner import config

WORKERS = {f"w{n}": "n0" for n in range(8)}


@pytest.mark.parametrize(
    ("devices", "mesh"),
    [(2, "dp=1 tp=1 pp=2"), (3, "dp=1 tp=1 pp=2"), (4, "dp=2 tp=1 pp=2"), (8, "dp=4 tp=1 pp=2"), (1, "dp=1 tp=1 pp=1")],
)
def test_replicas_fill_the_devices_that_were_asked_for(devices, mesh):
    asked = on_devices(config(dp=2, pp=2), devices)
    assert str(plan_for(asked, workers=WORKERS).plan.mesh) == mesh


def test_a_mesh_that_was_asked_for_is_the_config_s_own():
    asked = as_mesh(config(dp=2, pp=2, layers_per_stage=(4, 2)), Mesh(dp=1, tp=2, pp=3))
    found = plan_for(asked, workers=WORKERS)
    assert (str(found.plan.mesh), "what the config asks for" in found.reason) == ("dp=1 tp=2 pp=3", True)


@pytest.mark.parametrize(
    ("mesh", "says"),
    [
        (Mesh(dp=1, tp=3, pp=1), "3 does not go with model.num_attention_heads 4"),
        (Mesh(dp=1, tp=1, pp=7), "parallelism.pipeline_model_parallel_size"),
        (Mesh(dp=7, tp=1, pp=1), "7 replicas, but only 6 micro-batches"),
    ],
)
def test_a_mesh_that_does_not_divide_is_refused_with_what_would(mesh, says):
    with pytest.raises(PlanError, match=says):
        as_mesh(config(dp=2, pp=2), mesh)


def test_fewer_devices_than_the_least_are_refused():
    least = config(dp=2, pp=2)
    least = least.model_copy(update={"elastic": least.elastic.model_copy(update={"min_devices": 3})})
    with pytest.raises(PlanError, match=r"2 devices is below elastic\.min_devices 3"):
        on_devices(least, 2)


@pytest.mark.parametrize("devices", [2, 3, 4, 6])
def test_a_run_with_a_calendar_goes_to_each_of_its_sizes_and_to_any_between(devices):
    hours = tuple(CalendarEntry.model_validate({"from": f"0{n}:00", "devices": n}) for n in (2, 4, 6))
    timed = config(dp=2, pp=2)
    timed = timed.model_copy(update={"elastic": timed.elastic.model_copy(update={"calendar": hours})})
    assert faults_of(timed) == ()
    asked = on_devices(timed, devices)
    assert str(plan_for(asked, workers=WORKERS).plan.mesh) == f"dp={devices // 2} tp=1 pp=2"
    assert as_mesh(timed, Mesh(dp=1, tp=1, pp=2)).run.devices == 2
