"""Copies of state in the memory of peers are counted, and refused where a host has no room for them."""

import pytest

from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.plan.host_room import copies_by_node, refuse_copies_without_room
from raymega.plan.job import Job, job_of
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan
from raymega.plan.planner import plan_for

GB = 1e9


def asked(*, dp: int, device: str = "auto", **elastic: int) -> Config:
    return resolve(
        Config.model_validate(
            {
                "run": {"device": device},
                "parallelism": {"data_parallel_size": dp, "pipeline_model_parallel_size": 2},
                "elastic": {"copies_every": 1, **elastic},
            }
        ),
        name="x", seed=0, vocab_size=512,
    )  # fmt: skip


def made(config: Config) -> tuple[Plan, Job]:
    size = 2 * int(config.parallelism.data_parallel_size)
    return plan_for(config, workers={f"w{n}": f"n{n}" for n in range(size)}).plan, job_of(config)


def copies(config: Config) -> list[float]:
    plan, job = made(config)
    return [need.host_copies + need.peer_copies for need in memory_by_stage(job, layout_of(plan))]


def test_a_worker_keeps_two_of_its_own_state_and_two_of_a_peers():
    plan, job = made(asked(dp=1))
    first, last = memory_by_stage(job, layout_of(plan))
    states = [need.weights + need.moments for need in (first, last)]
    assert [first.host_copies, last.host_copies] == [2 * sum(states)] * 2
    assert first.total == sum(first.by_kind.values()), "the device is not asked for it"


@pytest.mark.parametrize(("dp", "tolerate", "kept"), [(2, 1, 0), (1, 2, 2), (2, 2, 1), (1, 0, 0)])
def test_replicas_make_up_for_copies(dp: int, tolerate: int, kept: int):
    plan, job = made(asked(dp=dp, tolerate_nodes=tolerate))
    first, last = memory_by_stage(job, layout_of(plan))
    own, other = first.weights + first.moments, last.weights + last.moments
    assert first.host_copies == (2 * (own + kept * other) if kept else 0)


@pytest.mark.parametrize(
    ("kind", "dp", "tolerate", "kept"), [("zero1", 2, 1, 1), ("mirrored", 2, 1, 0), ("mirrored", 3, 2, 1)]
)
def test_of_a_cut_state_a_worker_keeps_its_own_part_and_those_of_others(kind: str, dp: int, tolerate: int, kept: int):
    config = asked(dp=dp, tolerate_nodes=tolerate)
    cut = config.parallelism.model_copy(update={"shard_optimizer": kind})
    plan, job = made(config.model_copy(update={"parallelism": cut}))
    first, last = memory_by_stage(job, layout_of(plan))
    own, other = first.masters + first.moments, last.masters + last.moments
    assert first.host_copies == pytest.approx(2 * (own + kept * other) if kept else 0, rel=1e-12)


def test_on_cpus_copies_take_the_devices_own_memory():
    host, own = asked(dp=1), asked(dp=1, device="cpu")
    assert copies(host) == copies(own)
    assert memory_by_stage(made(own)[1], layout_of(made(own)[0]))[0].peer_copies > 0


def test_a_host_without_room_for_the_copies_is_refused_with_both_numbers():
    plan, job = made(asked(dp=1))
    node_of = {"w0": "n0", "w1": "n0"}
    (wanted,) = copies_by_node(plan, job=job, node_of=node_of).values()
    refuse_copies_without_room(plan, job=job, node_of=node_of, host_bytes={"n0": wanted})
    refuse_copies_without_room(plan, job=job, node_of=node_of, host_bytes={})
    with pytest.raises(PlanError, match=r"memory of node n0, which has .* elastic.copies_every to 0"):
        refuse_copies_without_room(plan, job=job, node_of=node_of, host_bytes={"n0": wanted - 1})
