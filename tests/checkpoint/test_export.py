"""An export is plain safetensors: whole tensors under global names, whoever wrote the checkpoint."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from raymega.checkpoint.export import INDEX, export_params
from raymega.errors import ConfigError, StateError
from tests.checkpoint.worlds import SPECS, plan_of, save, state_of


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    save(tmp_path / "checkpoints", step=5, plan=plan_of(dp=2, tp=2, pp=2))
    return f"{tmp_path}/checkpoints/step-5"


def test_every_parameter_is_there_whole_and_to_the_bit(checkpoint: str, tmp_path: Path):
    made = export_params(checkpoint, to=str(tmp_path / "out"))
    found, state = load_file(tmp_path / "out" / "model.safetensors"), state_of(5)
    assert set(found) == {spec.name for spec in SPECS}
    assert all(torch.equal(tensor, state[name, "param"]) for name, tensor in found.items())
    assert (made.files, made.tensors, made.step) == (("model.safetensors",), len(SPECS), 5)
    assert made.size_bytes == sum(tensor.nbytes for tensor in found.values())


def test_a_large_one_is_cut_into_files_with_an_index_that_names_each_tensors_file(checkpoint: str, tmp_path: Path):
    made = export_params(checkpoint, to=str(tmp_path / "out"), file_bytes=8000)
    index = json.loads((tmp_path / "out" / INDEX).read_text())
    assert len(made.files) > 2
    assert index["metadata"]["total_size"] == made.size_bytes
    for name, file in index["weight_map"].items():
        with safe_open(tmp_path / "out" / file, framework="pt") as opened:
            assert torch.equal(opened.get_tensor(name), state_of(5)[name, "param"])
    sizes = [sum(t.nbytes for t in load_file(tmp_path / "out" / file).values()) for file in made.files]
    assert all(
        size <= 8000 or len(load_file(tmp_path / "out" / file)) == 1
        for size, file in zip(sizes, made.files, strict=True)
    )


def test_a_directory_with_something_in_it_is_refused(checkpoint: str, tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("")
    with pytest.raises(ConfigError, match=r"holds mine\.txt; an export has a directory of its own"):
        export_params(checkpoint, to=str(tmp_path / "out"))


def test_a_checkpoint_that_is_not_whole_is_refused(checkpoint: str, tmp_path: Path):
    next(Path(checkpoint).glob("*.safetensors")).unlink()
    with pytest.raises(StateError, match=r"is not whole: .*is not there"):
        export_params(checkpoint, to=str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_damaged_byte_is_found_and_no_file_appears(checkpoint: str, tmp_path: Path):
    for file in Path(checkpoint).glob("*.safetensors"):
        data = bytearray(file.read_bytes())
        data[-3] ^= 1
        file.write_bytes(data)
    with pytest.raises(StateError, match="is corrupt"):
        export_params(checkpoint, to=str(tmp_path / "out"))
    assert list((tmp_path / "out").glob("*")) == []
