"""Any checkpoint loads under any layout, to the bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from raymega.checkpoint.load import load, load_params
from raymega.checkpoint.publish import publish
from raymega.checkpoint.shard_writer import Commit, write_shards
from raymega.checkpoint.state_item import StateItem
from raymega.checkpoint.store import LocalStore
from raymega.errors import StateError
from raymega.layout import checkpoint_layout
from raymega.layout.checkpoint_manifest import tensors_of
from raymega.layout.shard_box import Box
from raymega.plan.plan import Plan
from tests.checkpoint.worlds import EXPECTED, KINDS, SPECS, equals, items_of, manifest_of, plan_of, save, state_of

LAYOUTS = {
    "1,1,1": plan_of(), "2,1,1": plan_of(dp=2), "1,2,1": plan_of(tp=2), "1,1,2": plan_of(pp=2),
    "2,2,1": plan_of(dp=2, tp=2), "2,1,2": plan_of(dp=2, pp=2), "1,2,2": plan_of(tp=2, pp=2),
    "2,2,2": plan_of(dp=2, tp=2, pp=2), "3,1,1": plan_of(dp=3), "1,4,1": plan_of(tp=4), "1,1,3": plan_of(pp=3),
    "uneven": plan_of(tp=2, pp=2, layers=((0, 1), (1, 3))),
}  # fmt: skip


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One checkpoint by each layout, all of the same state."""
    roots = {name: tmp_path_factory.mktemp("ckpt") for name in LAYOUTS}
    for name, root in roots.items():
        save(root, step=5, plan=LAYOUTS[name])
    return roots


@pytest.mark.parametrize("writer", LAYOUTS)
@pytest.mark.parametrize("reader", LAYOUTS)
def test_any_layout_loads_what_any_layout_saved(saved: dict[str, Path], writer: str, reader: str):
    state = state_of(5)
    for rank in range(LAYOUTS[reader].mesh.size):
        items = items_of(LAYOUTS[reader], rank, None)
        manifest = load(f"{saved[writer]}/step-5", items=items, expected=EXPECTED)
        assert all(equals(item, state) for item in items)
        assert (manifest.step, manifest.samples) == (5, 80)


def test_files_are_plain_safetensors_with_names_that_say_what_they_hold(saved: dict[str, Path]):
    state, seen = state_of(5), 0
    for file in (saved["2,2,2"] / "step-5").glob("*.safetensors"):
        for key, tensor in load_file(file).items():
            name, kind, box = checkpoint_layout.parse_key(key)
            whole = state[name, kind]
            assert torch.equal(tensor, whole[box.within(Box.whole(tuple(whole.shape)))])
            seen += tensor.numel()
    assert seen == sum(tensor.numel() for tensor in state.values())


def test_replicas_share_the_writing(saved: dict[str, Path]):
    files = sorted((saved["2,1,1"] / "step-5").glob("*.safetensors"))
    sizes = [file.stat().st_size for file in files]
    assert len(sizes) == 2
    assert max(sizes) / min(sizes) < 1.2


def test_parameters_alone_can_be_taken(saved: dict[str, Path]):
    items = items_of(plan_of(), 0, None)
    load_params(f"{saved['2,2,2']}/step-5", items=items, expected=tensors_of(SPECS, kinds=KINDS))
    assert all(equals(item, state_of(5)) == (item.kind == "param") for item in items)
    assert all(item.tensor.isnan().all() for item in items if item.kind != "param")


def refusal(root: Path, plan: Plan, **changes: object) -> str:
    arguments = {"items": items_of(plan, 0, None), "expected": EXPECTED, **changes}
    with pytest.raises(StateError) as caught:
        load(f"{root}/step-5", **arguments)  # type: ignore[arg-type]
    return str(caught.value)


def test_moments_left_over_are_refused(saved: dict[str, Path]):
    items = [item for item in items_of(plan_of(), 0, None) if item.kind == "param"]
    message = refusal(saved["1,1,1"], plan_of(), items=items, expected=tensors_of(SPECS, kinds=("param",)))
    assert "(exp_avg) is in the checkpoint, but not in this model's state" in message
    assert "run.init_from" in message


def test_state_that_the_checkpoint_lacks_is_refused(saved: dict[str, Path]):
    message = refusal(saved["1,1,1"], plan_of(), expected=tensors_of(SPECS, kinds=(*KINDS, "residual")))
    assert "embed.tokens (residual) is not in the checkpoint" in message


def test_another_shape_or_type_is_refused(saved: dict[str, Path]):
    items = items_of(plan_of(), 0, None)
    half = [StateItem(name=i.name, kind=i.kind, shape=i.shape, box=i.box, tensor=i.tensor.bfloat16()) for i in items]
    assert "as BF16 [53, 24] is not in the checkpoint" in refusal(saved["1,1,1"], plan_of(), items=half)
    wider = [StateItem(name=i.name, kind=i.kind, shape=(59, 24), box=i.box, tensor=i.tensor) for i in items[:1]]
    assert "[59, 24] is not in the checkpoint" in refusal(saved["1,1,1"], plan_of(), items=wider)


def test_large_boxes_lie_in_pieces_and_files_of_bounded_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("raymega.checkpoint.shard_writer.PIECE_BYTES", 400)
    monkeypatch.setattr("raymega.checkpoint.shard_writer.FILE_BYTES", 6000)
    commit, state, store = Commit(run_id="tiny", step=5, generation=1), state_of(5), LocalStore(tmp_path)
    whole = [  # contiguous, as a snapshot is
        StateItem(name=i.name, kind=i.kind, shape=i.shape, box=i.box, tensor=i.tensor.contiguous())
        for i in items_of(plan_of(), 0, state)
    ]
    shards = write_shards(whole, store=store.sub("step-5"), worker="w0", commit=commit)
    publish(store, manifest=manifest_of(shards, step=5), keep=1)
    assert len(shards) > 5
    assert max(piece.box.num_elements for shard in shards for piece in shard.pieces) <= 100
    items = items_of(plan_of(tp=2), 1, None)
    load(f"{tmp_path}/step-5", items=items, expected=EXPECTED)
    assert all(equals(item, state) for item in items)
