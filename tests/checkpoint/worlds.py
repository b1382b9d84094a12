"""A tiny model's state, laid out by any plan, saved and loaded without processes: what every test here starts from."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from raymega.checkpoint.publish import Published, publish, shards_of
from raymega.checkpoint.save import FilesWritten, Saver, SaveResult
from raymega.checkpoint.shard_writer import Commit
from raymega.checkpoint.snapshot import items_to_write
from raymega.checkpoint.state_item import StateItem
from raymega.checkpoint.store import Store, open_store
from raymega.config.schema import ModelConfig
from raymega.layout.checkpoint_layout import assign
from raymega.layout.checkpoint_manifest import Manifest, ShardFile, TensorInfo, tensors_of
from raymega.layout.param_layout import holdings, param_specs
from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box
from raymega.mesh import Mesh
from raymega.plan.plan import Plan, straight_routes
from raymega.plan.stages import balanced_layers

KINDS = ("param", "exp_avg", "exp_avg_sq")
MODEL = ModelConfig(
    hidden_size=24, num_layers=3, num_attention_heads=4, num_key_value_heads=2, head_size=6, ffn_size=40,
    vocab_size=53, tie_embeddings=True,
)  # fmt: skip
SPECS = param_specs(MODEL, seq_len=16)
EXPECTED = tensors_of(SPECS, kinds=KINDS)
State = dict[tuple[str, str], torch.Tensor]


def plan_of(*, dp: int = 1, tp: int = 1, pp: int = 1, layers: tuple[tuple[int, int], ...] | None = None) -> Plan:
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    return Plan(
        mesh=mesh,
        workers=tuple(f"w{rank}" for rank in range(mesh.size)),
        layers=layers or balanced_layers(MODEL.num_layers, num_stages=pp),
        routes=straight_routes(num_microbatches=mesh.dp, mesh=mesh),
        microbatch_size=1,
    )


def state_of(seed: int, tensors: Sequence[TensorInfo] = EXPECTED) -> State:
    generator = torch.Generator().manual_seed(seed)
    return {(t.name, t.kind): torch.randn(t.shape, generator=generator) for t in tensors}


def items_of(plan: Plan, rank: int, state: State | None, specs: Sequence[ParamSpec] = SPECS) -> list[StateItem]:
    """What a rank holds, filled from a whole state, else with NaN; matrices lie transposed, as views may."""
    shapes = {spec.name: spec.shape for spec in specs}
    items = []
    for holding in holdings(specs, plan)[rank]:
        for kind in KINDS:
            tensor = torch.full(holding.box.sizes, float("nan"))
            if tensor.dim() == 2:
                tensor = tensor.t().contiguous().t()
            if state is not None:
                tensor.copy_(state[holding.name, kind][holding.box.within(Box.whole(shapes[holding.name]))])
            items.append(
                StateItem(name=holding.name, kind=kind, shape=shapes[holding.name], box=holding.box, tensor=tensor)
            )
    return items


def equals(item: StateItem, state: State) -> bool:
    return torch.equal(item.tensor, state[item.name, item.kind][item.box.within(Box.whole(item.shape))])


@dataclass
class Writers:
    """All workers of a plan, in one thread each for as long as a save takes."""

    plan: Plan
    store: Store
    results: list[SaveResult]

    def save(self, state: State, *, step: int, generation: int = 1) -> list[ShardFile]:
        """Every rank writes its part; files of those that could."""
        commit = Commit(run_id="tiny", step=step, generation=generation)
        shares = assign(holdings(SPECS, self.plan), shapes={spec.name: spec.shape for spec in SPECS})
        self.results = []
        for rank, worker in enumerate(self.plan.workers):
            saver = Saver(worker=worker, store=self.store, report=self.results.append)
            saver.start(items_to_write(items_of(self.plan, rank, state), shares[rank]), commit=commit, wait_s=0)
            assert saver.wait(60)
        records = [file for result in self.results if isinstance(result, FilesWritten) for file in result.files]
        return list(shards_of(records))


def manifest_of(shards: Sequence[ShardFile], *, step: int, generation: int = 1, tokenizer: str = "t") -> Manifest:
    return Manifest(
        run_id="tiny", step=step, generation=generation, samples=16 * step, seed=7, config_digest="c",
        tokenizer=tokenizer, tensors=EXPECTED, shards=tuple(shards),
    )  # fmt: skip


def save(
    uri: str | Path, *, step: int, plan: Plan | None = None, keep: int = 99, generation: int = 1, tokenizer: str = "t"
) -> Published:
    """Save and publish the state of seed `step`."""
    writers = Writers(plan or plan_of(dp=2, tp=2), open_store(str(uri)), [])
    shards = writers.save(state_of(step), step=step, generation=generation)
    manifest = manifest_of(shards, step=step, generation=generation, tokenizer=tokenizer)
    return publish(writers.store, manifest=manifest, keep=keep)
