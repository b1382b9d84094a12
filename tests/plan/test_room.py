"""What devices can hold decides which mesh a run takes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import DEVICES
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan
from raymega.plan.planner import PlanChoice, first_plan, plan_for
from raymega.plan.room import Room, room_of
from raymega.plan.uneven import without_teams


def config(*, dp: int | str = 1, pp: int | str = 1, tp: int | str = 1, layers: int = 4, **axes: object) -> Config:
    return Config.model_validate(
        {
            "model": {
                "num_layers": layers, "num_attention_heads": 4, "hidden_size": 128, "ffn_size": 512, "vocab_size": 512,
            },
            "data": {"seq_len": 256},
            "parallelism": {
                "data_parallel_size": dp, "pipeline_model_parallel_size": pp, "tensor_model_parallel_size": tp, **axes,
            },
            "training": {"batch_size": 8, "micro_batch_size": 2},
        }
    )  # fmt: skip


def room(made: Config, usable_bytes: float | dict[str, float]) -> Room:
    known = usable_bytes if isinstance(usable_bytes, dict) else {f"n{index}": usable_bytes for index in range(8)}
    found = room_of(made, usable_bytes=known)
    assert found is not None
    return found


def on(made: Config, devices: int, *, usable_bytes: float | dict[str, float]) -> PlanChoice:
    """Plan for w0, w1, .. on nodes of one device each."""
    workers = {f"w{index}": f"n{index}" for index in range(devices)}
    return plan_for(made, workers=workers, room=room(made, usable_bytes))


def peak(plan: Plan, made: Config) -> float:
    return max(need.total for need in memory_by_stage(room(made, 1.0).job, layout_of(plan)))


def test_of_meshes_that_the_config_leaves_open_the_fastest_that_fits_is_taken() -> None:
    made = config(dp="auto", pp="auto")
    fastest = on(made, 4, usable_bytes=1e12).plan
    assert str(fastest.mesh) == "dp=4 tp=1 pp=1"
    choice = on(made, 4, usable_bytes=0.9 * peak(fastest, made))
    assert choice.plan.mesh.pp > 1
    assert "of them too large for a device" in choice.reason
    (rejected,) = [row for row in choice.rejected if row.mesh == fastest.mesh]
    assert rejected.reason.startswith("stage 0 needs 0.0 GB of 0.0 GB a device;")


def test_what_is_left_of_a_run_is_not_put_where_it_has_no_room() -> None:
    made = config(dp=2, pp=2)
    plans = {size: on(made, size, usable_bytes=1e12).plan for size in (3, 2, 1)}
    assert [str(plan.mesh) for plan in plans.values()] == ["dp=1 tp=1 pp=2", "dp=1 tp=1 pp=2", "dp=1 tp=1 pp=1"]
    bounded = (peak(plans[2], made) + peak(plans[1], made)) / 2
    assert str(on(made, 2, usable_bytes=bounded).plan.mesh) == "dp=1 tp=1 pp=2"
    with pytest.raises(PlanError, match=r"dp=1 tp=1 pp=1: stage 0 needs .* GB a device; \w+ take\w* most"):
        on(made, 1, usable_bytes=bounded)


def test_a_run_does_not_start_where_its_devices_cannot_hold_it_and_hears_of_a_way_out() -> None:
    made = config(pp=2, layers=400)
    device = DEVICES["v100-16g"]
    small = Cluster(nodes=(Node(id="n0", devices=2, device=device),))
    huge = made.model_copy(update={"model": made.model.model_copy(update={"hidden_size": 4096, "ffn_size": 16384})})
    assert first_plan(made, cluster=small).plan.mesh == Mesh(dp=1, pp=2, tp=1)
    with pytest.raises(PlanError, match=r"recompute to full.*`raymega plan` says what fits"):
        first_plan(huge, cluster=small)


def test_devices_that_nobody_knows_are_not_judged() -> None:
    made = config(pp=2, layers=400)
    huge = made.model_copy(update={"model": made.model.model_copy(update={"hidden_size": 8192, "ffn_size": 32768})})
    assert first_plan(huge, cluster=Cluster(nodes=(Node(id="n0", devices=2),))).plan.mesh.size == 2
    assert room_of(huge, usable_bytes={}) is None
    assert plan_for(huge, workers={"w0": "n0", "w1": "n9"}, room=room(huge, {"n5": 1.0})).plan.mesh.size == 2


def test_the_smallest_device_of_a_stage_counts() -> None:
    made = config(pp=2)
    plan = on(made, 2, usable_bytes=1e12).plan
    first, last = (need.total for need in memory_by_stage(room(made, 1.0).job, layout_of(plan)))
    node_of = {"w0": "n0", "w1": "n1"}
    assert room(made, {"n0": first, "n1": last}).why_not(plan, node_of=node_of) is None
    told = room(made, {"n0": first, "n1": 0.99 * last}).why_not(plan, node_of=node_of)
    assert told is not None
    assert told.startswith("stage 1 needs")


def test_a_team_that_does_the_work_of_two_logs_the_messages_of_two() -> None:
    made = config(dp=2, pp=2)
    whole = on(made, 4, usable_bytes=1e12).plan
    node_of = {worker: "n0" for worker in whole.workers}
    fewer = without_teams(whole, [(1, 1)])
    assert fewer is not None
    bound = room(made, peak(whole, made))
    assert bound.why_not(whole, node_of=node_of) is None
    assert bound.why_not(fewer, node_of=node_of) is not None


@given(
    share=st.floats(0.2, 2.0), devices=st.integers(1, 6), recompute=st.sampled_from(["none", "selective", "full"]),
    open_axes=st.booleans(),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_what_is_chosen_fits_and_what_is_said_not_to_fit_does_not(
    share: float, devices: int, recompute: str, open_axes: bool
) -> None:
    axis = "auto" if open_axes else 2
    made = config(dp=axis, pp=axis, recompute=recompute)
    usable = share * peak(on(made, 1, usable_bytes=1e12).plan, made)
    held, node_of = room(made, usable), {f"w{index}": f"n{index}" for index in range(devices)}
    try:
        choice = on(made, devices, usable_bytes=usable)
    except PlanError:
        lacking = [mesh for mesh in _meshes(devices) if held.why_not(_plan_of(made, mesh), node_of=node_of)]
        assert Mesh(dp=1, pp=1, tp=1) in lacking
        return
    assert held.why_not(choice.plan, node_of=node_of) is None
    for row in choice.rejected:
        if row.reason.startswith("stage"):
            assert held.why_not(_plan_of(made, row.mesh), node_of=node_of) is not None


def _meshes(devices: int) -> list[Mesh]:
    return [Mesh(dp=1, pp=pp, tp=1) for pp in range(1, min(2, devices) + 1)]


def _plan_of(made: Config, mesh: Mesh) -> Plan:
    axes = {"data_parallel_size": mesh.dp, "pipeline_model_parallel_size": mesh.pp}
    fixed = made.model_copy(update={"parallelism": made.parallelism.model_copy(update=axes)})
    return plan_for(fixed, workers={f"w{index}": f"n{index}" for index in range(mesh.size)}).plan


def test_a_log_that_hosts_keep_takes_no_device_s_memory() -> None:
    made = config(dp=1, pp=2)
    plan = on(made, 2, usable_bytes=1e12).plan

    def logged(where: str, device: str) -> float:
        changed = made.model_copy(
            update={
                "elastic": made.elastic.model_copy(update={"boundary_log": where}),
                "run": made.run.model_copy(update={"device": device}),
            }
        )
        return memory_by_stage(room(changed, 1.0).job, layout_of(plan))[0].boundary_log

    assert logged("device", "cuda") == logged("host", "cpu") > 0
    assert logged("host", "cuda") == logged("off", "cpu") == 0
