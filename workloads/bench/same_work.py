"""What both contenders start from: the same first values, and the same rows at every step."""

import numpy as np
import torch

from raymega.config.schema import Config
from raymega.model.stage import build_stage


def rows_of(config: Config, step: int) -> np.ndarray:
    """The ids of a step, [batch, seq_len + 1] int32; any contender can make them by itself."""
    assert config.model.vocab_size is not None, "the config is resolved"
    shape = (config.training.batch_size, config.data.seq_len + 1)
    return np.random.default_rng([11, step]).integers(config.model.vocab_size, size=shape, dtype=np.int32)


def first_values(config: Config) -> dict[str, torch.Tensor]:
    """Every parameter of the model by its global name, as raymega makes it from the seed."""
    assert config.run.seed is not None, "the config is resolved"
    layers = (0, config.model.num_layers)
    stage = build_stage(config, layers=layers, first=True, last=True, team=None, seed=config.run.seed)
    return {param.spec.name: param.data.clone() for param in stage.params}
