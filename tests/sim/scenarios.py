"""Small scenarios: a config of a few stages on nodes of one or more devices."""

from raymega.config.load import load
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.plan.cluster import Cluster
from raymega.plan.cluster_presets import cluster_of
from raymega.sim.node_trace import NodeTrace, steady
from raymega.sim.simulate import Scenario
from raymega.sim.times import Times

SMALL = {
    "model.hidden_size": 256, "model.num_layers": 6, "model.num_attention_heads": 4, "data.seq_len": 128,
    "training.batch_size": 48, "training.micro_batch_size": 2, "elastic.steady_s": 0,
}  # fmt: skip


def config(*, dp: int, pp: int, tp: int = 1, **changes: object) -> Config:
    """A run of six layers; `changes`: keys with `__` for dots."""
    keys = SMALL | {
        "parallelism.data_parallel_size": dp,
        "parallelism.pipeline_model_parallel_size": pp,
        "parallelism.tensor_model_parallel_size": tp,
        **{key.replace("__", "."): value for key, value in changes.items()},
    }
    loaded = load("", source="sim", overrides=tuple(f"{key}={value}" for key, value in keys.items()))
    return resolve(loaded, vocab_size=1024, name="sim", seed=0)


def rows(*pairs: tuple[float, int], end_s: float) -> NodeTrace:
    return NodeTrace(rows=pairs, end_s=end_s)


def scenario(
    asked: Config, *, nodes: int = 0, trace: NodeTrace | None = None, cluster: Cluster | None = None,
    times: Times | None = None, full_step_s: float | None = 2.0,
) -> Scenario:  # fmt: skip
    """Steps of two seconds on all nodes."""
    return Scenario(
        config=asked,
        cluster=cluster or cluster_of(f"cpu:{nodes or (trace.most if trace else 1)}"),
        trace=trace or steady(nodes=nodes, duration_s=600.0),
        times=times or Times(),
        full_step_s=full_step_s,
    )
