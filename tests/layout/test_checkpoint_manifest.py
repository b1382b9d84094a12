import json
from dataclasses import replace

import pytest

from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import (
    Manifest,
    Piece,
    ShardFile,
    TensorInfo,
    estimate_bytes,
    gaps,
    misfits,
    parse,
    tensors_of,
)
from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box


def piece(text: str, kind: str = "param") -> Piece:
    return Piece(name="wq", kind=kind, box=Box.parse(text), checksum="aa")


def shard(file: str, *pieces: Piece) -> ShardFile:
    return ShardFile(file=file, size_bytes=100, checksum="bb", pieces=pieces)


MANIFEST = Manifest(
    run_id="nano", step=40, generation=1000001, samples=640, seed=7, config_digest="cc", tokenizer="dd",
    scalars={"loss_scale": 1024.0}, tensors=(TensorInfo(name="wq", kind="param", shape=(4, 6)),),
    shards=(shard("a", piece("0:4,0:3")), shard("b", piece("0:4,3:6"))),
)  # fmt: skip


def test_a_manifest_is_read_back_equal_with_the_same_checksum():
    assert parse(MANIFEST.to_text()) == MANIFEST
    assert json.loads(MANIFEST.to_text())["checksum"] == MANIFEST.checksum


def test_what_a_run_keeps_is_told_and_one_that_does_not_tell_is_read_as_it_was():
    telling = replace(MANIFEST, kept={"model.norm_eps": 1e-5, "model.custom": None})
    assert parse(telling.to_text()) == telling
    assert "kept" not in MANIFEST.to_text()
    assert telling.checksum != MANIFEST.checksum


def test_equal_states_have_equal_checksums_and_no_others():
    assert replace(MANIFEST).checksum == MANIFEST.checksum
    assert replace(MANIFEST, samples=641).checksum != MANIFEST.checksum


@pytest.mark.parametrize("place", [0, 0.2, 0.4, 0.6, 0.8])
def test_a_changed_byte_is_noticed(place: float):
    text = MANIFEST.to_text()
    digit = next(i for i in range(int(place * len(text)), len(text)) if text[i].isdigit())
    with pytest.raises(StateError, match=r"corrupt|format"):
        parse(text[:digit] + str((int(text[digit]) + 1) % 10) + text[digit + 1 :])


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "[" * 100_000, MANIFEST.to_text()[:200]])
def test_a_torn_manifest_is_corrupt(text: str):
    with pytest.raises(StateError, match="corrupt"):
        parse(text)


def test_a_newer_format_says_so():
    with pytest.raises(StateError, match="has format 99; this raymega reads up to 1"):
        parse(json.dumps({**json.loads(MANIFEST.to_text()), "format": 99}))


@pytest.mark.parametrize("field", ["samples", "seed", "scalars", "tensors", "shards", "checksum"])
def test_a_missing_part_is_named(field: str):
    data = json.loads(MANIFEST.to_text())
    del data[field]
    with pytest.raises(StateError, match=f"manifest lacks {field}"):
        parse(json.dumps(data))


def test_a_whole_checkpoint_has_no_gaps():
    assert gaps(MANIFEST) == ()


def test_gaps_name_what_is_missing_twice_or_unknown():
    def found(*shards: ShardFile) -> str:
        return "; ".join(gaps(replace(MANIFEST, shards=shards)))

    assert "no shard holds wq (param) 0:4,3:6" in found(MANIFEST.shards[0])
    assert "wq (param) 0:4,0:3 is held twice" in found(*MANIFEST.shards, shard("c", piece("0:1,0:1")))
    assert "wq (exp_avg) is in a shard" in found(*MANIFEST.shards, shard("c", piece("0:1,0:1", "exp_avg")))


def test_misfits_name_unfilled_left_over_and_other_shapes():
    expected = (TensorInfo(name="wq", kind="param", shape=(4, 7)), TensorInfo(name="wk", kind="param", shape=(2,)))
    other = replace(MANIFEST, tensors=(*MANIFEST.tensors, TensorInfo(name="wq", kind="exp_avg", shape=(4, 6))))
    assert misfits(other, expected) == (
        "wq (param) is F32 [4, 6] in the checkpoint, F32 [4, 7] here",
        "wk (param) is not in the checkpoint",
        "wq (exp_avg) is in the checkpoint, but not in this model's state",
    )
    assert misfits(MANIFEST, MANIFEST.tensors) == ()


def test_a_checkpoint_of_adam_has_twelve_bytes_a_parameter():
    spec = ParamSpec(name="wq", shape=(4, 6), cut="none", owner=0, init="normal")
    kinds = ("param", "exp_avg", "exp_avg_sq")
    assert estimate_bytes([spec], kinds=kinds) == 12 * 24
    assert [tensor.kind for tensor in tensors_of([spec], kinds=kinds)] == list(kinds)
