"""Damage of every kind is named, and the checkpoint before it is used."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from raymega.checkpoint.faults import Needs
from raymega.checkpoint.find import at_step, newest_complete
from raymega.checkpoint.load import load
from raymega.checkpoint.publish import publish, set_aside
from raymega.checkpoint.store import open_store
from raymega.checkpoint.verify import list_checkpoints, verify
from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import parse
from tests.checkpoint.worlds import EXPECTED, KINDS, Writers, equals, items_of, manifest_of, plan_of, save, state_of

NEEDS = Needs(kinds=frozenset(KINDS))


def newest(root: Path, **options: object) -> int | None:
    found = newest_complete(str(root), needs=NEEDS, **options)  # type: ignore[arg-type]
    return found and found.manifest.step


def a_shard(root: Path) -> Path:
    return sorted((root / "step-20").glob("*.safetensors"))[0]


def flip_a_byte(root: Path) -> None:
    data = bytearray(a_shard(root).read_bytes())
    data[-1000] ^= 1
    a_shard(root).write_bytes(data)


def truncate(root: Path) -> None:
    a_shard(root).write_bytes(a_shard(root).read_bytes()[:-1])


def rewrite(root: Path, **changes: object) -> None:
    """Put another, consistent manifest in place."""
    path = root / "step-20" / "manifest.json"
    path.write_text(replace(parse(path.read_text()), **changes).to_text())  # type: ignore[arg-type]


def drop_kind(root: Path, kind: str) -> None:
    rewrite(root, tensors=tuple(tensor for tensor in EXPECTED if tensor.kind != kind))


def drop_field(root: Path) -> None:
    path = root / "step-20" / "manifest.json"
    data = json.loads(path.read_text())
    del data["samples"]
    path.write_text(json.dumps(data))


def loop(path: Path) -> None:
    """Put a link to itself in place."""
    path.unlink()
    path.symlink_to(path)


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a shard is missing": (lambda root: a_shard(root).unlink(), r"g1-w0-0-\w+.safetensors is not there; it holds"),
    "a shard is short": (truncate, r"g1-w0-0-\w+.safetensors has [\d,]+ of its [\d,]+ bytes"),
    "a byte is flipped": (flip_a_byte, r"g1-w0-0-\w+.safetensors is corrupt"),
    "a manifest is torn": (lambda root: (root / "step-20/manifest.json").write_text("{"), "manifest is corrupt"),
    "a manifest is deep": (lambda root: (root / "step-20/manifest.json").write_text("[" * 10**5), "is corrupt: max"),
    "a manifest is a loop": (lambda root: loop(root / "step-20/manifest.json"), "cannot be read"),
    "a shard is a loop": (lambda root: loop(a_shard(root)), r"g1-w0-0-\w+.safetensors is not there; it holds"),
    "a field is gone": (drop_field, "the manifest lacks samples"),
    "a part is in no shard": (lambda root: rewrite(root, shards=()), r"no shard holds embed.tokens \(param\)"),
    "the optimizer is gone": (lambda root: drop_kind(root, "exp_avg"), "it holds no exp_avg of embed.tokens"),
    "it is another step's": (lambda root: rewrite(root, step=21), "manifest is of step 21"),
    "it is another run's": (lambda root: rewrite(root, run_id="x"), r"is of run, step, generation \('tiny'"),
}  # fmt: skip


@pytest.fixture
def root(tmp_path: Path) -> Path:
    save(tmp_path, step=10)
    save(tmp_path, step=20)
    return tmp_path


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_named(root: Path, damage: str):
    inflict, words = DAMAGE[damage]
    inflict(root)
    found = newest_complete(str(root), needs=NEEDS)
    assert found is not None
    assert found.manifest.step == 10
    with pytest.raises(StateError, match=words):
        raise StateError(*found.warnings)
    with pytest.raises(StateError, match=words):
        at_step(str(root), step=20, needs=NEEDS)


def test_a_step_that_is_a_link_to_itself_is_passed_over_and_listed(root: Path):
    save(root, step=30)
    (root / "step-30").rename(root / "away")
    (root / "step-30").symlink_to(root / "step-30")
    assert newest(root) == 20
    assert [row.standing for row in list_checkpoints(str(root))] == ["complete", "complete", "unpublished"]


def test_a_missing_scalar_is_named(root: Path):
    needs = Needs(kinds=frozenset(KINDS), scalars=frozenset({"loss_scale"}))
    rewrite(root, scalars={"loss_scale": 1.0})
    assert newest_complete(str(root), needs=needs).manifest.step == 20  # type: ignore[union-attr]
    with pytest.raises(StateError, match="it lacks loss_scale"):
        at_step(str(root), step=10, needs=needs)


def test_when_all_are_damaged_nothing_starts_afresh(root: Path):
    for shard in root.glob("*/*.safetensors"):
        shard.unlink()
    with pytest.raises(StateError, match=r"no checkpoint in .* is whole. step 20 .* step 10 .*--resume none"):
        newest(root)


def test_an_empty_or_unpublished_directory_has_no_checkpoint(tmp_path: Path):
    assert newest(tmp_path / "nothing") is None
    Writers(plan_of(), open_store(str(tmp_path)), []).save(state_of(4), step=4)
    assert newest(tmp_path) is None


def test_large_checkpoints_are_checked_piece_by_piece_as_they_load(root: Path):
    flip_a_byte(root)
    assert newest(root, full_check_bytes=0) == 20
    with pytest.raises(StateError, match=r"g1-w0-0-.*\|.* is corrupt"):
        load(f"{root}/step-20", items=items_of(plan_of(), 0, None), expected=EXPECTED)


def test_a_node_that_does_not_see_the_checkpoint_says_so(tmp_path: Path):
    with pytest.raises(StateError, match=r"step-20 on .+ has no manifest.json"):
        load(f"{tmp_path}/step-20", items=items_of(plan_of(), 0, None), expected=EXPECTED)


def test_names_are_compared_as_numbers_and_foreign_ones_left_alone(tmp_path: Path):
    for step in (900, 1000, 9000, 10000):
        save(tmp_path, step=step)
    (tmp_path / "step-final").mkdir()
    (tmp_path / "tmp").mkdir()
    (tmp_path / "step-99999").write_text("a file")
    assert newest(tmp_path) == 10000
    assert save(tmp_path, step=10100, keep=3).removed == (900, 1000)
    names = {"step-9000", "step-10000", "step-10100", "step-final", "tmp", "step-99999"}
    assert {path.name for path in tmp_path.iterdir()} == names


def test_another_user_file_in_an_old_checkpoint_stays(root: Path):
    (root / "step-10" / "notes.txt").write_text("mine")
    save(root, step=30, keep=1)
    assert [path.name for path in (root / "step-10").iterdir()] == ["notes.txt"]
    assert not (root / "step-20").exists()


def test_a_damaged_checkpoint_does_not_count_as_kept(root: Path):
    a_shard(root).unlink()
    assert save(root, step=30, keep=2).removed == ()
    assert newest(root) == 30
    assert (root / "step-10" / "manifest.json").exists()


def test_leftovers_of_broken_attempts_are_in_nobodys_way(root: Path):
    for generation in (2, 3, 4):
        Writers(plan_of(tp=2), open_store(str(root)), []).save(state_of(0), step=30, generation=generation)
    save(root, step=30, generation=5)
    assert all(name.name.startswith(("g5-", "manifest")) for name in (root / "step-30").iterdir())
    assert newest(root) == 30


def test_a_part_that_is_missing_is_not_published(root: Path):
    writers = Writers(plan_of(tp=2), open_store(str(root)), [])
    shards = writers.save(state_of(30), step=30)
    with pytest.raises(StateError, match="step 30 is not published: no shard holds"):
        publish(writers.store, manifest=manifest_of(shards[:1], step=30), keep=1)
    (root / "step-30" / shards[1].file).unlink()
    with pytest.raises(StateError, match=r"g1-w1-0-\w+.safetensors is not there.*must see the same storage"):
        publish(writers.store, manifest=manifest_of(shards, step=30), keep=1)
    assert newest(root) == 20


def test_a_run_that_goes_back_does_not_jump_to_the_future_it_left(root: Path):
    save(root, step=5)
    assert set_aside(open_store(str(root)), after_step=5) == (10, 20)
    assert newest(root) == 5
    assert save(root, step=7, keep=1).removed == (5,)
    assert newest(root) == 7
    assert [row.standing for row in list_checkpoints(str(root))] == ["complete", "set-aside", "set-aside"]


def test_asking_for_a_step_names_those_that_are_there(root: Path):
    assert at_step(str(root), step=10).manifest.step == 10
    with pytest.raises(StateError, match="no checkpoint of step 15; there are: 10, 20"):
        at_step(str(root), step=15)


def test_ls_shows_each_with_its_standing(root: Path):
    truncate(root)
    Writers(plan_of(), open_store(str(root)), []).save(state_of(4), step=30)
    rows = list_checkpoints(str(root))
    assert [(row.step, row.standing, row.samples) for row in rows] == [
        (10, "complete", 160), (20, "damaged", 320), (30, "unpublished", None),
    ]  # fmt: skip
    assert rows[0].size_bytes == sum(file.stat().st_size for file in (root / "step-10").glob("*.safetensors"))


def test_verify_reads_all_of_one_or_of_all(root: Path):
    assert verify(str(root)).ok
    flip_a_byte(root)
    assert not verify(str(root)).ok
    assert verify(f"{root}/step-10").ok
    assert "is corrupt" in verify(f"{root}/step-20").rows[0].faults[0]
    with pytest.raises(StateError, match="holds no checkpoint and is none"):
        verify(str(root / "nothing"))


def test_all_of_it_works_on_any_storage(uri: str):
    save(uri, step=900)
    save(uri, step=1000, keep=1)
    found = newest_complete(uri, needs=NEEDS)
    assert found is not None
    assert [row.step for row in list_checkpoints(uri)] == [1000]
    items = items_of(plan_of(pp=2), 1, None)
    assert load(found.uri, items=items, expected=EXPECTED).checksum == found.manifest.checksum
    assert all(equals(item, state_of(1000)) for item in items)
    assert verify(uri).ok
