"""The layout that Megatron users copy for 175B, and what the planner says of it."""

import cProfile
from collections.abc import Callable
from dataclasses import replace

import pytest

from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.plan.advice import Advice, advise
from raymega.plan.cluster_presets import cluster_of
from raymega.plan.space import EVERYTHING


def config_175b(*, microbatch: int = 10, batch: int = 1920) -> Config:
    return Config.model_validate(
        {
            "model": {
                "kind": "gpt2", "hidden_size": 12288, "num_layers": 96, "num_attention_heads": 96, "vocab_size": 51200,
                "tie_embeddings": True,
            },
            "data": {"seq_len": 2048},
            "parallelism": {
                "data_parallel_size": 16, "tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 12,
            },
            "training": {"batch_size": batch, "micro_batch_size": microbatch},
        }
    )  # fmt: skip


def free_175b(*, microbatch: int = 10, batch: int = 1920) -> Config:
    """The same with every axis left to the planner."""
    made = config_175b(microbatch=microbatch, batch=batch)
    names = ("data_parallel_size", "tensor_model_parallel_size", "pipeline_model_parallel_size")
    return made.model_copy(update={"parallelism": made.parallelism.model_copy(update=dict.fromkeys(names, "auto"))})


def calls_of(work: Callable[[], object]) -> int:
    """Calls of functions, which are the same on an idle machine and on a busy one."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.fixture(scope="module")
def advice() -> Advice:
    return advise(config_175b(), cluster=cluster_of("dgx-a100:192"), precision="bf16")


def test_the_copied_layout_idles_for_nearly_half_of_its_step(advice: Advice) -> None:
    assert advice.asked is not None
    assert f"{advice.asked.schedule_bubble():.1%}" == "47.8%"


def test_it_does_not_fit_and_the_part_that_does_not_is_named(advice: Advice) -> None:
    assert advice.refused is not None
    assert advice.refused.startswith("stage 0 needs 315.6 GB of 80.7 GB a device; activations take most, 265.8 GB")


def test_the_nearest_layout_that_fits_changes_one_setting_and_both_are_predicted(advice: Advice) -> None:
    assert advice.changed == ("micro_batch_size 10 -> 1",)
    assert advice.nearest is not None
    assert advice.asked is not None
    assert advice.nearest.fits
    assert advice.nearest.step_s < 0.7 * advice.asked.step_s


def test_the_best_is_no_slower_than_what_is_near(advice: Advice) -> None:
    assert advice.nearest is not None
    assert advice.best.fits
    assert advice.best.step_s <= advice.nearest.step_s
    assert advice.best.layout.mesh.tp <= 8


def test_with_chunks_the_best_is_faster_still() -> None:
    cluster, free = cluster_of("dgx-a100:16"), free_175b(batch=64)
    plain, more = (
        advise(free, cluster=cluster, precision="bf16", features=replace(EVERYTHING, schedules=schedules)).best
        for schedules in ((("1f1b", 1),), (("1f1b", 1), ("interleaved", 2), ("interleaved", 4)))
    )
    assert plain.layout.num_chunks == 1
    assert more.layout.num_chunks > 1
    assert more.step_s < plain.step_s


def test_where_nothing_fits_the_error_names_the_smallest_change() -> None:
    with pytest.raises(PlanError, match=r"Add 7 nodes of 8 a100-80g, or use devices of 271 GB\.") as caught:
        advise(config_175b(), cluster=cluster_of("dgx-a100:2"), precision="bf16")
    assert "stage 0 needs" in str(caught.value)
    assert advise(free_175b(), cluster=cluster_of("dgx-a100:9"), precision="bf16").best.fits


def test_256_devices_and_96_layers_are_planned_within_a_second() -> None:
    """2.3 million calls, which take 0.8 s of a core."""
    assert calls_of(lambda: advise(free_175b(), cluster=cluster_of("dgx-a100:32"), precision="bf16")) < 3e6


def test_ten_thousand_devices_are_planned_within_two_seconds() -> None:
    assert calls_of(lambda: advise(free_175b(), cluster=cluster_of("dgx-a100:1250"), precision="bf16")) < 3e6


def test_no_free_device_is_refused() -> None:
    with pytest.raises(PlanError, match="Add one"):
        advise(config_175b(), cluster=cluster_of("dgx-a100:1").without({"n0"}))
