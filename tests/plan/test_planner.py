import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.errors import PlanError
from raymega.mesh import Mesh
from raymega.plan.auto import predicted
from raymega.plan.cluster import Cluster, Node
from raymega.plan.planner import PlanChoice, first_plan, plan_for
from raymega.plan.programs import check_programs

Size = int | str


def config(
    *,
    dp: Size = 1,
    tp: Size = 1,
    pp: Size = 1,
    layers: int = 6,
    heads: int = 4,
    microbatches: int = 6,
    devices: int | None = None,
    layers_per_stage: tuple[int, ...] | None = None,
    sequence_parallel: bool = False,
) -> Config:
    return Config.model_validate(
        {
            "run": {"devices": devices},
            "model": {"num_layers": layers, "num_attention_heads": heads, "ffn_size": 768},
            "parallelism": {
                "data_parallel_size": dp,
                "tensor_model_parallel_size": tp,
                "pipeline_model_parallel_size": pp,
                "layers_per_stage": layers_per_stage,
                "sequence_parallel": sequence_parallel,
            },
            "training": {"batch_size": 2 * microbatches, "micro_batch_size": 2},
        }
    )


def on(made: Config, *devices: int) -> PlanChoice:
    """Plan for workers w0, w1, .. on nodes of so many devices."""
    seats = [f"n{node}" for node, count in enumerate(devices) for _ in range(count)]
    return plan_for(made, workers={f"w{i}": node for i, node in enumerate(seats)})


def test_the_config_s_own_mesh_is_taken_where_it_fits() -> None:
    choice = on(config(dp=2, tp=2, pp=2), 4, 4)
    assert str(choice.plan.mesh) == "dp=2 tp=2 pp=2"
    assert choice.plan.workers == tuple(f"w{i}" for i in range(8))
    assert choice.reason == "dp=2 tp=2 pp=2 on 8 of 8 devices: what the config asks for"


@pytest.mark.parametrize(
    ("devices", "mesh"),
    [
        (7, "dp=2 tp=1 pp=3"),
        (6, "dp=2 tp=1 pp=3"),
        (5, "dp=2 tp=1 pp=2"),
        (4, "dp=2 tp=1 pp=2"),
        (3, "dp=1 tp=1 pp=3"),
        (2, "dp=1 tp=1 pp=2"),
        (1, "dp=1 tp=1 pp=1"),
    ],
)
def test_what_is_left_of_a_mesh_is_the_largest_that_has_room(devices: int, mesh: str) -> None:
    assert str(on(config(dp=2, pp=3), devices).plan.mesh) == mesh


@pytest.mark.parametrize(("devices", "mesh"), [(7, "dp=1 tp=2 pp=2"), (3, "dp=1 tp=2 pp=1"), (1, "dp=1 tp=1 pp=1")])
def test_dp_is_given_up_before_pp_and_pp_before_tp(devices: int, mesh: str) -> None:
    assert str(on(config(dp=2, tp=2, pp=2), devices).plan.mesh) == mesh


def test_the_reason_names_the_mesh_that_was_missed_and_the_others_why_they_were_not_taken() -> None:
    choice = on(config(dp=2, pp=3), 3)
    assert choice.reason == (
        "dp=1 tp=1 pp=3 on 3 of 3 devices: the largest that is left of dp=2 tp=1 pp=3, which needs 6"
    )
    assert [f"{other.mesh}: {other.reason}" for other in choice.rejected] == [
        "dp=2 tp=1 pp=3: needs 6",
        "dp=1 tp=1 pp=2: uses 2, not 3",
        "dp=2 tp=1 pp=1: uses 2, not 3",
    ]


def test_a_team_that_would_be_torn_is_a_reason_to_shrink() -> None:
    choice = on(config(dp=3, tp=2), 3, 3)
    assert str(choice.plan.mesh) == "dp=2 tp=2 pp=1"
    assert "dp=3 tp=2 pp=1, which has 3 teams of 2, each on one node, where 2 find room" in choice.reason


def test_tp_shrinks_only_to_what_divides_the_heads() -> None:
    assert on(config(tp=6, heads=6), 5).plan.mesh.tp == 3


def test_an_axis_left_to_the_planner_takes_what_it_can_get() -> None:
    assert str(on(config(dp="auto", pp=2), 7).plan.mesh) == "dp=3 tp=1 pp=2"
    assert str(on(config(dp="auto", microbatches=3), 7).plan.mesh) == "dp=3 tp=1 pp=1"
    assert str(on(config(dp="auto", pp=2, devices=4), 7).plan.mesh) == "dp=2 tp=1 pp=2"
    assert str(on(config(dp="auto", pp="auto", tp="auto"), 4).plan.mesh) == "dp=4 tp=1 pp=1"
    assert str(on(config(dp="auto", pp=2), 1).plan.mesh) == "dp=1 tp=1 pp=1"


def test_of_the_meshes_that_a_config_leaves_open_the_fastest_is_taken() -> None:
    made = config(dp="auto", pp="auto", microbatches=2)
    made = made.model_copy(update={"model": made.model.model_copy(update={"vocab_size": 2000, "hidden_size": 1024})})
    choice = on(made, 4)
    assert choice.reason == f"{choice.plan.mesh} on 4 of 4 devices: the fastest of 4 that the config allows"
    assert choice.plan.mesh.dp <= 2
    factors = [float(other.reason.split()[1]) for other in choice.rejected]
    assert min(factors) >= 1.0
    assert factors == sorted(factors)


def test_replicas_are_predicted_with_the_optimizer_state_cut_as_it_is_asked_for() -> None:
    whole = config(dp="auto")
    whole = whole.model_copy(update={"model": whole.model.model_copy(update={"vocab_size": 97})})
    cut = whole.model_copy(update={"parallelism": whole.parallelism.model_copy(update={"shard_optimizer": "zero1"})})
    cluster, meshes = Cluster.of_workers({f"w{i}": "n0" for i in range(4)}), (Mesh(dp=4, pp=1, tp=1),)
    (cut_s, _), (whole_s, _) = (predicted(made, meshes, cluster=cluster)[0] for made in (cut, whole))
    assert cut_s < whole_s, "a quarter of the moments is updated"


def test_earlier_workers_are_preferred_as_long_as_no_team_is_torn() -> None:
    survivors = {"w1": "n0", "w2": "n1", "w9": "n0", "w10": "n2"}
    assert plan_for(config(dp=2), workers=survivors).plan.workers == ("w1", "w2")
    assert plan_for(config(tp=2), workers=survivors).plan.workers == ("w1", "w9")


def test_layers_are_as_the_config_cuts_them_else_balanced() -> None:
    made = config(pp=3, layers_per_stage=(1, 2, 3))
    assert on(made, 3).plan.layers == ((0, 1), (1, 3), (3, 6))
    assert on(made, 2).plan.layers == ((0, 3), (3, 6))


def test_a_team_that_has_shrunk_to_one_has_no_sequence_to_cut() -> None:
    made = config(tp=2, sequence_parallel=True)
    assert on(made, 2).plan.sequence_parallel
    assert not on(made, 1).plan.sequence_parallel


def test_a_run_starts_with_its_own_mesh_or_not_at_all() -> None:
    cluster = Cluster(nodes=(Node(id="a", devices=2), Node(id="b", devices=2)))
    assert first_plan(config(dp=2, pp=2), cluster=cluster).plan.workers == ("w0", "w1", "w2", "w3")
    with pytest.raises(PlanError, match=r"Mesh dp=2 tp=1 pp=3 needs 6 devices; the cluster has 4 on 2 nodes"):
        first_plan(config(dp=2, pp=3), cluster=cluster)
    with pytest.raises(PlanError, match=r"run\.devices needs 8 devices; .* Lower it to 4, or add 4\."):
        first_plan(config(dp="auto", devices=8), cluster=cluster)


def test_a_first_plan_uses_only_what_is_free() -> None:
    cluster = Cluster(nodes=(Node(id="a", devices=2, held=1), Node(id="b", devices=2)))
    assert first_plan(config(dp="auto"), cluster=cluster).plan.mesh.dp == 3


def test_no_worker_at_all_is_refused() -> None:
    with pytest.raises(PlanError, match="the cluster has 0 on 0 nodes"):
        plan_for(config(), workers={})


@given(
    wish=st.tuples(*[st.sampled_from([1, 2, 3, 4, "auto"])] * 3),
    nodes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    layers=st.integers(4, 6),
    microbatches=st.integers(4, 7),
)
@settings(max_examples=80, deadline=None)
def test_any_number_of_workers_has_a_plan_that_obeys_the_rules_and_runs(
    wish: tuple[Size, Size, Size], nodes: list[int], layers: int, microbatches: int
) -> None:
    dp, tp, pp = wish
    made = config(dp=dp, tp=tp, pp=pp, layers=layers, heads=12, microbatches=microbatches)
    plan = on(made, *nodes).plan
    mesh = plan.mesh
    as_config = config(dp=mesh.dp, tp=mesh.tp, pp=mesh.pp, layers=layers, heads=12, microbatches=microbatches)
    assert not [fault for fault in faults_of(as_config) if fault.key.startswith("parallelism")]
    have = (mesh.dp, mesh.tp, mesh.pp)
    assert all(size <= most for size, most in zip(have, wish, strict=True) if isinstance(most, int))
    check_programs(plan)
