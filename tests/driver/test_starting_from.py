"""Which checkpoint starts a run, and which is refused."""

from pathlib import Path

import pytest

from raymega.checkpoint.find import read_manifest
from raymega.checkpoint.store import open_store
from raymega.config.load import to_yaml
from raymega.config.schema import Config
from raymega.driver.starting_from import check_origin, checkpoint_at
from raymega.errors import StateError
from tests.checkpoint.worlds import MODEL, plan_of, save


def config(**model: object) -> Config:
    return Config.model_validate({"model": {**MODEL.model_dump(), **model}, "data": {"seq_len": 16}})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run's directory with two checkpoints, each by another mesh."""
    save(tmp_path / "checkpoints", step=3, plan=plan_of(dp=2))
    save(tmp_path / "checkpoints", step=12, plan=plan_of(tp=2, pp=2))
    (tmp_path / "config.yaml").write_text(to_yaml(config()))
    return tmp_path


def started(run: Path, *, tokenizer: str, step: int = 12, **model: object) -> tuple[str, ...]:
    full = config(**model)
    at = {"init_from": f"{run}/checkpoints/step-{step}"}
    return check_origin(full.model_copy(update={"run": full.run.model_copy(update=at)}), tokenizer=tokenizer)


@pytest.mark.parametrize(("place", "step"), [("", 12), ("checkpoints", 12), ("checkpoints/step-3", 3)])
def test_a_run_its_checkpoints_or_one_of_them_may_be_named(run: Path, place: str, step: int):
    assert checkpoint_at(str(run / place)) == f"{run}/checkpoints/step-{step}"


def test_a_place_without_a_checkpoint_is_refused(tmp_path: Path):
    with pytest.raises(StateError, match="is no checkpoint, and holds none"):
        checkpoint_at(str(tmp_path))
    (tmp_path / "config.yaml").write_text(to_yaml(config()))
    with pytest.raises(StateError, match="has no complete checkpoint yet"):
        checkpoint_at(str(tmp_path))


def test_any_mesh_and_optimizer_may_have_written_it_and_another_tokenizer_is_told(run: Path):
    known = read_manifest(open_store(f"{run}/checkpoints/step-12")).tokenizer
    assert started(run, tokenizer=known) == started(run, tokenizer=known, step=3) == ()
    (warning,) = started(run, tokenizer="another")
    assert "another tokenizer" in warning


def test_another_model_is_refused_with_the_tensor_that_differs(run: Path):
    with pytest.raises(StateError, match=r"run\.init_from: .* cannot start this run: .*\[53, 24\].*more faults"):
        started(run, tokenizer="t", hidden_size=48)


def test_a_checkpoint_that_lost_a_file_is_refused_with_what_it_held(run: Path):
    next((run / "checkpoints" / "step-12").glob("*.safetensors")).unlink()
    with pytest.raises(StateError, match=r"is not there; it holds .*Name a whole checkpoint"):
        started(run, tokenizer="t")
