"""Drawing from a model, and the model that a checkpoint of any mesh becomes in one process."""

from dataclasses import replace

import pytest
import torch

from raymega.config.schema import Config, DataConfig, ParallelismConfig
from raymega.errors import ConfigError, StateError
from raymega.worker.sample import Draws, generate, load_model, sample_text
from tests.checkpoint.worlds import MODEL, plan_of, save, state_of

CONFIG = Config(model=MODEL, data=DataConfig(seq_len=16, tokenizer="byte"))
GREEDY = Draws(num_tokens=5, temperature=0, top_k=0)


class Counts:
    """Stands in for a stage: the next id is the last one plus one; remembers how long its windows were."""

    def __init__(self, *, sharpness: float = 9.0, size: int = 12) -> None:
        self.sharpness, self.size, self.windows = sharpness, size, []

    def forward(self, x, ctx):
        assert not ctx.training
        self.windows.append(x.shape[1])
        return x[..., None].float()

    def logits(self, y):
        following = (y[..., 0].long() + 1) % self.size
        return self.sharpness * torch.nn.functional.one_hot(following, self.size).float()


def drawn(model=None, *, start=(3, 4), end=0, vocab_size=12, seq_len=3, draws=GREEDY) -> list[int]:
    return generate(model or Counts(), start=start, end=end, vocab_size=vocab_size, seq_len=seq_len, draws=draws)


def test_the_most_likely_ids_follow_and_the_end_of_the_document_ends_it():
    assert drawn() == [5, 6, 7, 8, 9]
    assert drawn(end=7) == [5, 6]


def test_the_model_sees_no_more_than_its_longest_sequence():
    model = Counts()
    drawn(model)
    assert model.windows == [2, 3, 3, 3, 3]


def test_ids_without_text_are_never_drawn():
    draws = Draws(num_tokens=200, temperature=5.0, top_k=0)
    assert max(drawn(Counts(sharpness=0.1), end=-1, vocab_size=7, draws=draws)) == 6


def test_a_seed_draws_the_same_text_and_another_one_another():
    draws = [Draws(num_tokens=40, top_k=0, seed=seed) for seed in (1, 1, 2)]
    first, again, other = (drawn(Counts(sharpness=0.5), end=-1, draws=each) for each in draws)
    assert first == again != other


@pytest.mark.parametrize("seed", [-1, 2**63, 2**70])
def test_any_whole_number_is_a_seed(seed: int):
    assert len(drawn(Counts(sharpness=0.5), end=-1, draws=Draws(num_tokens=4, top_k=0, seed=seed))) == 4


def test_a_prompt_of_broken_bytes_is_refused_before_anything_is_loaded():
    with pytest.raises(ConfigError, match="the prompt is no text: surrogates not allowed at letter 2"):
        sample_text(CONFIG, checkpoint="nowhere", prompt="To\udcff", draws=GREEDY)


def test_top_k_draws_only_from_the_most_likely():
    assert drawn(Counts(sharpness=0.1), draws=replace(GREEDY, temperature=9.0, top_k=1)) == [5, 6, 7, 8, 9]


@pytest.mark.parametrize("axes", [{}, {"tp": 2, "pp": 2}])
def test_a_checkpoint_of_any_mesh_becomes_the_whole_model(axes: dict[str, int], tmp_path):
    save(tmp_path, step=3, plan=plan_of(**axes))
    parallelism = ParallelismConfig(tensor_model_parallel_size=2, sequence_parallel=True)
    model = load_model(CONFIG.model_copy(update={"parallelism": parallelism}), checkpoint=f"{tmp_path}/step-3")
    state = state_of(3)
    assert all(torch.equal(param.data, state[param.spec.name, "param"]) for param in model.params)


def test_another_model_is_refused(tmp_path):
    save(tmp_path, step=3)
    other = CONFIG.model_copy(update={"model": MODEL.model_copy(update={"vocab_size": 257})})
    with pytest.raises(StateError):
        sample_text(other, checkpoint=f"{tmp_path}/step-3", prompt="x", draws=GREEDY)
