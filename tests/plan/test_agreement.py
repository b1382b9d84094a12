"""The validator, the memory model, the planner and its advice say the same of a layout."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.plan.advice import advise
from raymega.plan.cluster import Cluster, Node
from raymega.plan.estimate import Bench
from raymega.plan.fitted import PUBLISHED
from raymega.plan.grid import Grid
from raymega.plan.hardware import DEVICES
from raymega.plan.job import job_of
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.planner import first_plan
from raymega.plan.predict import predict_layout
from raymega.plan.search import Board, search
from raymega.plan.space import EVERYTHING, Features, Space, asked_layout, free_space
from raymega.plan.verdict import judge

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v")


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """Any that names a layout; not each of them passes the rules."""
    axes = {
        "data_parallel_size": draw(st.integers(1, 3)),
        "tensor_model_parallel_size": draw(st.sampled_from([1, 2, 4])),
        "pipeline_model_parallel_size": draw(st.integers(1, 4)),
        "schedule": draw(st.sampled_from(SCHEDULES)),
        "recompute": draw(st.sampled_from(["none", "selective", "full", (0, 2)])),
        "shard_optimizer": draw(st.sampled_from(["none", "zero1", "mirrored"])),
        "sequence_parallel": draw(st.booleans()),
    }
    return Config.model_validate(
        {
            "model": {
                "num_layers": draw(st.integers(1, 9)), "num_attention_heads": 4, "num_key_value_heads": 2,
                "hidden_size": 64, "ffn_size": 128, "vocab_size": 300, "tie_embeddings": draw(st.booleans()),
            },
            "data": {"seq_len": 32},
            "parallelism": axes,
            "training": {"batch_size": 12, "micro_batch_size": draw(st.sampled_from([1, 2, 3, 4, 6]))},
        }
    )  # fmt: skip


def needed(made: Config, layout: ParallelLayout) -> float:
    return max(need.total for need in memory_by_stage(job_of(made), layout))


def on(usable_bytes: float) -> Cluster:
    """Devices enough, of so much memory that may be filled."""
    share = DEVICES["a10g"].usable_bytes / DEVICES["a10g"].memory_bytes
    device = replace(DEVICES["a10g"], name="made", memory_bytes=usable_bytes / share)
    return Cluster(nodes=tuple(Node(id=f"n{index}", devices=8, device=device) for index in range(6)))


@given(made=configs(), spare=st.sampled_from([0.5, 0.98, 1.02, 2.0]))
@settings(max_examples=40, deadline=None)
def test_a_run_begins_just_where_rules_and_memory_let_it(made: Config, spare: float) -> None:
    assume(not faults_of(made))
    layout = asked_layout(made)
    assert layout is not None
    cluster, fits = on(spare * needed(made, layout)), spare > 1
    try:
        begun = first_plan(made, cluster=cluster).plan.mesh == layout.mesh
    except PlanError:
        begun = False
    assert begun == fits


@given(made=configs())
@settings(max_examples=15, deadline=None)
def test_what_fits_is_not_advised_against_and_never_called_impossible(made: Config) -> None:
    assume(not faults_of(made))
    layout = asked_layout(made)
    assert layout is not None
    cluster = on(1.02 * needed(made, layout))
    advice = advise(made, cluster=cluster)
    assert advice.refused is None
    assert advice.best.fits
    (found,) = search(job_of(made), space=just(layout), cluster=cluster).ranked
    assert replace(found.layout, layers=layout.layers) == layout


@given(made=configs())
@settings(max_examples=15, deadline=None)
def test_what_rules_and_memory_let_pass_is_among_what_the_planner_looks_at_and_has_room_there(made: Config) -> None:
    assume(not faults_of(made))
    layout = asked_layout(made)
    assert layout is not None
    assume(layout.schedule != "gpipe")  # never better than 1F1B
    assume(isinstance(layout.recompute, str))
    cluster = on(1.02 * needed(made, layout))
    bench = Bench.of(job_of(made), cluster=cluster, constants=PUBLISHED)
    grid = Grid.of(bench, space=free_space(made, cluster=cluster, features=EVERYTHING))
    (at,) = np.flatnonzero((grid.num_changes(layout) == 0) & np.isfinite(grid.step_s))
    assert grid.has_room[at]
    board = Board.of(job_of(made), cluster=cluster, constants=PUBLISHED)
    assert board.tried(grid.at(int(at)).layout(made.model.num_layers), estimated_s=1.0).refused is None


@given(made=configs())
@settings(max_examples=15, deadline=None)
def test_what_does_not_fit_is_advised_against_with_the_stage_that_lacks(made: Config) -> None:
    assume(not faults_of(made))
    layout = asked_layout(made)
    assert layout is not None
    cluster = on(0.98 * needed(made, layout))
    asked = predict_layout(layout, job=job_of(made), cluster=cluster)
    refused = judge(asked).refused
    assert not asked.fits
    assert refused is not None
    assert refused.startswith("stage")


def test_where_only_the_layout_that_is_asked_for_fits_it_is_the_best() -> None:
    made = Config.model_validate(
        {
            "model": {"num_layers": 8, "hidden_size": 64, "vocab_size": 300},
            "data": {"seq_len": 512},
            "parallelism": {"recompute": "full"},
            "training": {"batch_size": 4, "micro_batch_size": 4},
        }
    )
    layout = asked_layout(made)
    assert layout is not None
    plain = Features(schedules=(("1f1b", 1),), recompute=("none",), shard_optimizer=("none",))
    one = Cluster(nodes=on(1.02 * needed(made, layout)).nodes[:1])
    single = Cluster(nodes=(replace(one.nodes[0], devices=1),))
    advice = advise(made, cluster=single, features=plain)
    assert advice.found.ranked == ()
    assert advice.best.layout == layout


def just(layout: ParallelLayout) -> Space:
    """Nothing but this layout, however its layers are cut."""
    mesh = layout.mesh
    return Space(
        tp=(mesh.tp,),
        pp=(mesh.pp,),
        dp=(mesh.dp,),
        microbatch_sizes=(layout.microbatch_size,),
        schedules=((layout.schedule, layout.num_chunks),),
        sequence_parallel=(layout.sequence_parallel,),
        recompute=(layout.recompute,),
        shard_optimizer=(layout.shard_optimizer,),
    )
