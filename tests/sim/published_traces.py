"""What Oobleck's artifact publishes of itself, Varuna and Bamboo on nodes that go, and the shapes to compare with.

effective fraction   30 nodes of one device lose one every ten minutes until 15 are left; here: worker-seconds that
                     entered committed steps, over all since the run had started
share of linear      spot nodes of a cloud that come and go; steps over those of as many node-seconds at the speed of 30

Assumed here: a step of 30 nodes takes what the artifact's throughput says, others by this planner's model; a node has
one device of 48 GB and 200 Gbit/s; devices that come are used at once (`elastic.steady_s` 0); no checkpoints; hands as
in `sim.times`. Micro-batches and meshes are of this file, so that the shapes fit into 48 GB: the artifact does not name
them. Its engine keeps weights and optimizer in fp32, whole on each stage, counts 24 bytes a parameter, and recomputes
blocks: for 6.7B that is a pipeline of four nodes at least, and so here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from raymega.config.load import load
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.plan.cluster import Cluster, Node
from raymega.plan.hardware import DEVICES, Links, ethernet
from raymega.sim.node_trace import NodeTrace
from raymega.sim.simulate import Scenario
from raymega.sim.times import times_on

NODES = 30
TRACES = Path(__file__).parents[3] / "shared" / "traces"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A model as it was trained: `samples_per_s` on 30 nodes; shares in per cent, Oobleck's own."""

    name: str
    hidden: int
    layers: int
    heads: int
    seq_len: int
    batch: int
    micro: int
    pp: int
    samples_per_s: float
    effective: float
    of_linear: float
    p3_samples_per_s: float
    lean: bool = False  # recomputes, and logs messages in the hosts' memory


SHAPES = (
    Shape(name="BERT-large", hidden=1024, layers=24, heads=16, seq_len=512, batch=8192, micro=16, pp=1,
          samples_per_s=368.3, effective=95.5, of_linear=74.7, p3_samples_per_s=221.4),
    Shape(name="GPT-2", hidden=1600, layers=48, heads=25, seq_len=1024, batch=1024, micro=2, pp=2,
          samples_per_s=110.0, effective=97.9, of_linear=75.4, p3_samples_per_s=66.8),
    Shape(name="GPT-3 medium", hidden=1024, layers=24, heads=16, seq_len=2048, batch=819, micro=1, pp=1,
          samples_per_s=38.5, effective=95.4, of_linear=72.6, p3_samples_per_s=22.5),
    Shape(name="GPT-3 2.7B", hidden=2560, layers=32, heads=32, seq_len=2048, batch=512, micro=1, pp=2,
          samples_per_s=9.21, effective=89.8, of_linear=73.0, p3_samples_per_s=5.42),
    Shape(name="GPT-3 6.7B", hidden=4096, layers=32, heads=32, seq_len=2048, batch=1024, micro=1, pp=4,
          lean=True, samples_per_s=5.51, effective=75.9, of_linear=60.3, p3_samples_per_s=2.68),
)  # fmt: skip


def config_of(shape: Shape, *, changes: Mapping[str, object] = MappingProxyType({})) -> Config:
    """The run; `changes`: keys of its config and their values."""
    keys: dict[str, object] = {
        "model.kind": "gpt2", "model.hidden_size": shape.hidden, "model.num_layers": shape.layers,
        "model.num_attention_heads": shape.heads, "model.tie_embeddings": "true", "data.seq_len": shape.seq_len,
        "training.batch_size": shape.batch, "training.micro_batch_size": shape.micro, "elastic.steady_s": 0,
        "parallelism.data_parallel_size": NODES // shape.pp, "parallelism.pipeline_model_parallel_size": shape.pp,
    }  # fmt: skip
    if shape.lean:
        keys |= {"parallelism.recompute": "full", "elastic.boundary_log": "host"}
    keys |= changes
    loaded = load("", source=shape.name, overrides=tuple(f"{key}={value}" for key, value in keys.items()))
    return resolve(loaded, vocab_size=50304, name="compared", seed=0)


def compared(
    shape: Shape, trace: NodeTrace, *, most_passes: int = 0, changes: Mapping[str, object] = MappingProxyType({})
) -> Scenario:
    """A run of `shape` on the nodes of `trace`.

    Args:
        most_passes: as a scenario's; 0: repairs are counted in bulk, in seconds; the clock takes up to minutes.
        changes: as for `config_of`.
    """
    way = ethernet(200)
    nodes = tuple(Node(id=f"n{index}", devices=1, device=DEVICES["l40s"]) for index in range(NODES))
    cluster = Cluster(nodes=nodes, links=Links(device=way, node=way, rack=way))
    return Scenario(
        config=config_of(shape, changes=changes), cluster=cluster, trace=trace, times=times_on(cluster),
        full_step_s=shape.batch / shape.samples_per_s, most_passes=most_passes,
    )  # fmt: skip


if __name__ == "__main__":
    import sys
    import time

    from raymega.sim.node_trace import read_trace
    from raymega.sim.simulate import simulate
    from raymega.sim.times import SOURCES

    most = 10**9 if "exact" in sys.argv else 0
    ten, spot = (
        read_trace((TRACES / f"oobleck_{name}.csv").read_text(), source=name) for name in ("synth_10m", "scaled_p3")
    )
    print("               effective, 10 min       p3: of linear           samples/s              processor")
    for row in SHAPES:
        begun_s = time.process_time()
        slow, real = (simulate(compared(row, trace, most_passes=most)) for trace in (ten, spot))
        print(
            f"{row.name:<14} {slow.effective_share:6.1%} ({row.effective} %)   {real.share_of_linear:8.1%} "
            f"({row.of_linear} %)  {real.samples_per_s:10.2f} ({row.p3_samples_per_s})   "
            f"{time.process_time() - begun_s:8.1f} s",
            flush=True,
        )
    times = compared(SHAPES[0], ten).times
    for name, source in SOURCES.items():
        print(f"  {name:<22} {getattr(times, name):>9.3g}   {source}")
