"""The config as it runs: every value that was left to be derived or drawn, filled in.

    kv heads, head_size, ffn_size     from the other sizes          vocab_size     the tokenizer's
    name, seed                        drawn by the caller, who has the clock and the dice
    schedule_table                    the rows of the file that `schedule` names

What is left open is what may change at a resume: the end of the schedule (steps), the mesh where it is `auto`.
Padding of the vocabulary is an internal matter of a plan and does not occur here.
"""

from raymega.config import choices
from raymega.config.schedule_table import rows_of_table
from raymega.config.schema import Config
from raymega.errors import ConfigError


def resolve(config: Config, *, vocab_size: int, name: str, seed: int) -> Config:
    """Fill in what the user left open.

    Args:
        vocab_size: ids of the tokenizer are below this.
        name: the run's, where none is given.
        seed: the run's, where none is given.

    Raises: ConfigError if `model.vocab_size` is smaller than the tokenizer's, or the schedule's file cannot be read.
    """
    given = config.model.vocab_size
    if given is not None and given < vocab_size:
        raise ConfigError(
            f"model.vocab_size: {given} is below the {vocab_size} ids of tokenizer {config.data.tokenizer}; every id "
            f"has a row. Use {vocab_size} or more, or leave it out.",
            vocab_size=given,
            tokenizer_size=vocab_size,
        )
    sizes = {
        "num_key_value_heads": choices.kv_heads(config),
        "head_size": choices.head_size(config),
        "ffn_size": choices.ffn_size(config),
        "vocab_size": given or vocab_size,
    }
    drawn = {
        "name": config.run.name if config.run.name is not None else name,
        "seed": config.run.seed if config.run.seed is not None else seed,
    }
    axes = config.parallelism
    if choices.is_table(axes.schedule) and axes.schedule_table is None:
        axes = axes.model_copy(update={"schedule_table": rows_of_table(axes.schedule)})
    return config.model_copy(
        update={
            "model": config.model.model_copy(update=sizes),
            "run": config.run.model_copy(update=drawn),
            "parallelism": axes,
        }
    )
