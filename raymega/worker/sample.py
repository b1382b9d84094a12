"""Text from a checkpoint: the whole model in one process, whatever mesh trained it.

    prompt -> its ids, or the end of a document if it has none -> logits of the last position -> a draw -> appended
              `--------------- the last seq_len ids ----------------------------------------------------'  and again

Each new token costs a forward pass over all that is in the window, without a cache: meant for a look at what a run has
learned, not for serving.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from raymega.checkpoint.load import load_params
from raymega.checkpoint.state_item import StateItem
from raymega.config.schema import Config
from raymega.data.tokenizer import load_tokenizer
from raymega.errors import ConfigError
from raymega.layout.checkpoint_manifest import tensors_of
from raymega.model.pass_context import PassContext
from raymega.model.stage import StageModel, build_stage, specs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """How tokens are drawn.

    Args:
        num_tokens: most that are drawn; the end of the document ends it earlier.
        temperature: divides the logits; 0 takes the most likely one.
        top_k: only so many of the most likely ones are drawn from; 0: all.
        seed: the same seed draws the same text.
    """

    num_tokens: int = 100
    temperature: float = 0.8
    top_k: int = 50
    seed: int = 0


def sample_text(config: Config, *, checkpoint: str, prompt: str, draws: Draws) -> str:
    """The prompt and what the model goes on with.

    Args:
        config: as resolved, of the run that wrote the checkpoint.
        checkpoint: a directory URI, `.../step-N`.

    Raises: StateError if the checkpoint does not hold this model, ConfigError or DataError for its tokenizer,
        ConfigError for a prompt that is no text.
    """
    try:
        prompt.encode()
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"the prompt is no text: {error.reason} at letter {error.start}. Write it in UTF-8."
        ) from error
    tokenizer = load_tokenizer(config.data.tokenizer)
    model = load_model(config, checkpoint=checkpoint)
    start = tokenizer.encode([prompt])[0].tolist() or [tokenizer.eod_id]
    drawn = generate(
        model,
        start=start,
        end=tokenizer.eod_id,
        vocab_size=tokenizer.vocab_size,
        seq_len=config.data.seq_len,
        draws=draws,
    )
    return tokenizer.decode([*start, *drawn])


def load_model(config: Config, *, checkpoint: str) -> StageModel:
    """The whole model as one stage of one shard, with the parameters of a checkpoint."""
    alone = config.model_copy(
        update={"parallelism": config.parallelism.model_copy(update={"sequence_parallel": False})}
    )
    layers = (0, config.model.num_layers)
    model = build_stage(alone, layers=layers, first=True, last=True, team=None, seed=config.run.seed or 0)
    items = tuple(
        StateItem(name=param.spec.name, kind="param", shape=param.spec.shape, box=param.box, tensor=param.data.detach())
        for param in model.params
    )
    load_params(checkpoint, items=items, expected=tensors_of(specs_of(alone), kinds=("param",)))
    model.flat.cast()
    return model


@torch.no_grad()
def generate(
    model: StageModel, *, start: Sequence[int], end: int, vocab_size: int, seq_len: int, draws: Draws
) -> list[int]:
    """Ids that follow `start`, up to `end` (left out). Ids at or above `vocab_size` have no text and are not drawn."""
    dice = torch.Generator().manual_seed(draws.seed % 2**63)
    context = PassContext(step=0, samples=torch.zeros(1, dtype=torch.int64), training=False)
    ids = list(start)
    while len(ids) < len(start) + draws.num_tokens:
        window = torch.tensor([ids[-seq_len:]])  # [1, T]
        hidden = model.forward(window, context)[:, -1:]  # [1, 1, D]
        logits = model.logits(hidden)[0, 0, :vocab_size].float().cpu()  # [V]
        drawn = _draw(logits, draws=draws, dice=dice)
        if drawn == end:
            break
        ids.append(drawn)
    return ids[len(start) :]


def _draw(logits: torch.Tensor, *, draws: Draws, dice: torch.Generator) -> int:
    if draws.temperature == 0:
        return int(logits.argmax())
    if draws.top_k:
        least = logits.topk(min(draws.top_k, len(logits))).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    shares = torch.softmax(logits / draws.temperature, dim=0)
    return int(torch.multinomial(shares, 1, generator=dice))
