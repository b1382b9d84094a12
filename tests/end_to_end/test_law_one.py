"""Law 1 on real actors: the same losses, norms and weights from `raymega train` on three meshes."""

from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.load import load
from raymega.checkpoint.state_item import StateItem
from raymega.driver.records.json_lines import read_lines
from raymega.layout.shard_box import Box
from tests.end_to_end.here import run_here

SHAPE = (
    "model.hidden_size=96", "model.num_layers=10", "model.num_attention_heads=12", "model.num_key_value_heads=4",
    "model.head_size=8", "model.ffn_size=160", "data.seq_len=24",
)  # fmt: skip
TRAINING = (
    "run.seed=1234", "training.steps=10", "training.batch_size=8", "training.micro_batch_size=2",
    "training.optimizer=sgd", "training.lr=0.02", "training.weight_decay=0", "training.clip_grad=0",
)  # fmt: skip


def trained(path: Path, *, dp: int, tp: int, pp: int) -> tuple[list[dict], dict[str, torch.Tensor]]:
    """(lines of metrics.jsonl, whole weights of the last checkpoint)."""
    mesh = (f"data_parallel_size={dp}", f"tensor_model_parallel_size={tp}", f"pipeline_model_parallel_size={pp}")
    run_dir = run_here(path, *SHAPE, *TRAINING, *(f"parallelism.{size}" for size in mesh))
    found = newest_complete(str(run_dir.checkpoints))
    assert found is not None
    tensors = found.manifest.tensors
    items = [
        StateItem(name=t.name, kind=t.kind, shape=t.shape, box=Box.whole(t.shape), tensor=torch.empty(t.shape))
        for t in tensors
    ]
    load(found.uri, items=items, expected=tensors)
    return list(read_lines(run_dir.metrics)), {item.name: item.tensor for item in items}


@pytest.mark.ray
@pytest.mark.slow
def test_a_run_is_the_same_on_one_worker_and_on_meshes_of_actors(local_ray, tmp_path):
    with open("/dev/full", "w") as full, redirect_stdout(full):  # which a run outlasts
        lines, weights = trained(tmp_path / "one", dp=1, tp=1, pp=1)
    for number, mesh in enumerate(({"dp": 2, "tp": 1, "pp": 2}, {"dp": 1, "tp": 2, "pp": 2})):
        mine, other = trained(tmp_path / str(number), **mesh)
        assert [line["first_sample"] for line in mine] == [8 * step for step in range(10)]
        for a, b in zip(mine, lines, strict=True):
            limit = 1e-6 if a["step"] == 1 else 1e-5
            assert a["loss"] == pytest.approx(b["loss"], rel=limit)
            assert a["grad_norm"] == pytest.approx(b["grad_norm"], rel=limit)
        for name, weight in weights.items():
            assert (other[name] - weight).abs().max() < 1e-5 * weight.abs().max(), name
