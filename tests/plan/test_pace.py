import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raymega.config.schema import Config
from raymega.mesh import Mesh
from raymega.plan.cluster import Cluster, Node
from raymega.plan.fitted import PUBLISHED
from raymega.plan.hardware import DEVICES, PCIE4, Link, Links, ethernet
from raymega.plan.job import job_of
from raymega.plan.parallel_layout import ParallelLayout
from raymega.plan.search import Board
from raymega.plan.stages import balanced_layers


@given(
    name=st.sampled_from(["1f1b", "zb-h1", "zb-h2", "zb-v"]), pp=st.integers(2, 4), microbatches=st.integers(8, 40),
    between=st.sampled_from([ethernet(1), ethernet(100)]),
)  # fmt: skip
@example(name="zb-h2", pp=2, microbatches=12, between=ethernet(1))
@example(name="1f1b", pp=4, microbatches=19, between=ethernet(1))
@settings(max_examples=12, deadline=None)
def test_a_long_step_that_is_timed_on_its_first_microbatches_takes_as_long_as_timed_whole(
    name: str, pp: int, microbatches: int, between: Link
) -> None:
    chunks = 2 if name == "zb-v" else 1
    made = Config.model_validate(
        {
            "model": {"num_layers": 2 * pp, "num_attention_heads": 4, "hidden_size": 256, "vocab_size": 3000},
            "data": {"seq_len": 128},
            "training": {"batch_size": microbatches, "micro_batch_size": 1},
        }
    )
    nodes = tuple(Node(id=f"n{i}", devices=1, device=DEVICES["a10g"]) for i in range(pp))
    cluster = Cluster(nodes=nodes, links=Links(device=PCIE4, node=between, rack=between))
    board = Board.of(job_of(made), cluster=cluster, constants=PUBLISHED)
    layout = ParallelLayout(
        mesh=Mesh(dp=1, pp=pp, tp=1), layers=balanced_layers(2 * pp, num_stages=pp * chunks), microbatch_size=1,
        schedule=name,
    )  # fmt: skip
    found = board.tried(layout, estimated_s=0.0)
    assert found.step_s == pytest.approx(board.predicted(found.layout).step_s, rel=0.03)
