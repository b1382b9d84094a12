"""What `raymega train --dry-run` prints: the config as it would run, and what it adds up to."""

from raymega.config.fault import counted
from raymega.config.load import to_yaml
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.data.tokenizer import load_tokenizer
from raymega.driver.paths import with_absolute_paths
from raymega.driver.preflight import inputs_of
from raymega.driver.sinks.trackers import check_trackers
from raymega.model_shape import parameter_count, state_bytes, token_flops


def dry_run_text(config: Config) -> str:
    """The resolved config as YAML, with its sums as comments.

    Raises: DataError or ConfigError where the data cannot be opened or does not fit, or there is no such model.
    """
    check_trackers(config.log.trackers)
    config = with_absolute_paths(config)
    vocab_size = load_tokenizer(config.data.tokenizer).vocab_size
    resolved = resolve(
        config, vocab_size=vocab_size, name=config.run.name or "drawn-at-start", seed=config.run.seed or 0
    )
    inputs_of(resolved)
    axes, training, seq_len = resolved.parallelism, resolved.training, resolved.data.seq_len
    parameters = parameter_count(resolved.model, seq_len=seq_len).total
    state = state_bytes(parameters, optimizer=training.optimizer)
    flops = token_flops(resolved.model, seq_len=seq_len).total * training.batch_size * seq_len
    mesh = (axes.data_parallel_size, axes.tensor_model_parallel_size, axes.pipeline_model_parallel_size)
    return (
        f"{to_yaml(_as_given(resolved, config))}"
        f"{_what_is_drawn(config)}"
        f"# mesh: dp={mesh[0]} tp={mesh[1]} pp={mesh[2]}\n"
        f"# parameters: {parameters:,}; weights, gradients and moments of a replica: {state / 1e9:,.2f} GB\n"
        f"# a step: {counted(training.batch_size // training.micro_batch_size, noun='micro-batch')}, "
        f"{training.batch_size * seq_len:,} tokens, {flops / 1e12:,.2f} TFLOP"
    )


def _as_given(resolved: Config, config: Config) -> Config:
    """Without what a start draws: a file of this text leaves it to be drawn."""
    run = resolved.run.model_copy(update={"name": config.run.name, "seed": config.run.seed})
    return resolved.model_copy(update={"run": run})


def _what_is_drawn(config: Config) -> str:
    drawn = [f"run.{key}" for key in ("name", "seed") if getattr(config.run, key) is None]
    return f"# drawn at the start: {', '.join(drawn)}\n" if drawn else ""
