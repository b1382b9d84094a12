"""A sample of text from a run's newest checkpoint, by the whole model in this process.

The window slides: a token is drawn from what the last `seq_len` tokens say. Nothing is kept from one token to the
next, so the cost of a token is a forward pass over the window.
"""

import torch

from raymega.checkpoint.find import newest_complete
from raymega.checkpoint.load import load_params
from raymega.checkpoint.state_item import StateItem
from raymega.config.schema import Config
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.run_dir import RunDirectory
from raymega.errors import StateError
from raymega.layout.checkpoint_manifest import tensors_of
from raymega.model.stage import PassContext, StageModel, build_stage, specs_of

TEMPERATURE = 0.8


def newest_sample(run_dir: RunDirectory, prompt: str, *, num_tokens: int, seed: int = 0) -> str:
    """Continue `prompt` with the newest checkpoint of a run.

    Raises: StateError if there is no whole checkpoint.
    """
    config = run_dir.read_config()
    directory = config.checkpoint.path or str(run_dir.checkpoints)
    found = newest_complete(directory)
    if found is None:
        raise StateError(f"{directory} has no checkpoint yet; a sample needs one.")
    return continued(loaded(config, found.uri), config, prompt, num_tokens=num_tokens, seed=seed)


def loaded(config: Config, uri: str) -> StageModel:
    """The whole model with the parameters of the checkpoint at `uri`."""
    layers = (0, config.model.num_layers)
    whole = config.model_copy(
        update={"parallelism": config.parallelism.model_copy(update={"sequence_parallel": False})}
    )
    model = build_stage(whole, layers=layers, first=True, last=True, team=None, seed=0)
    items = [
        StateItem(name=param.spec.name, kind="param", shape=param.spec.shape, box=param.box, tensor=param.data)
        for param in model.params
    ]
    load_params(uri, items=items, expected=tensors_of(specs_of(whole), kinds=("param",)))
    return model


@torch.no_grad()
def continued(model: StageModel, config: Config, prompt: str, *, num_tokens: int, seed: int) -> str:
    """`prompt` and `num_tokens` tokens drawn from the model."""
    tokenizer = load_tokenizer(config.data.tokenizer)
    ids = [int(i) for i in tokenizer.encode([prompt])[0]] or [tokenizer.eod_id]
    dice = torch.Generator().manual_seed(seed)
    ctx = PassContext(step=0, samples=torch.zeros(1, dtype=torch.int64), training=False)
    for _ in range(num_tokens):
        window = torch.tensor([ids[-config.data.seq_len :]])  # [1, T]
        logits = model.logits(model.forward(window, ctx))[0, -1, : tokenizer.vocab_size]  # [V]
        chances = torch.softmax(logits / TEMPERATURE, dim=-1)
        ids.append(int(torch.multinomial(chances, 1, generator=dice)))
    return tokenizer.decode(ids)
