"""What `raymega data prepare` says: what was made, and what to write into a config."""

from raymega.config.fault import counted
from raymega.config.load import to_line
from raymega.data.manifest import TOKENIZER
from raymega.driver.data_prepare import prepare


def prepared_text(
    inputs: tuple[str, ...],
    *,
    out: str,
    tokenizer: str,
    seq_len: int,
    valid_fraction: float,
    eod_token: str | None,
    text_field: str,
) -> str:
    """Prepare `inputs` and say what was made.

    Raises: ConfigError, DataError; nothing is left at `out` then.
    """
    made = prepare(
        inputs, out=out, tokenizer=tokenizer, seq_len=seq_len, valid_fraction=valid_fraction, eod_token=eod_token,
        text_field=text_field,
    )  # fmt: skip
    splits = [
        f"{name:<6}{split.rows:>12,} rows {split.trained_tokens:>15,} trained tokens"
        f"  unigram entropy {split.unigram_entropy:.4f} nats"
        for name, split in made.manifest.splits.items()
    ]
    spec = made.directory / TOKENIZER
    used = str(spec) if spec.exists() else made.manifest.tokenizer.name
    return "\n".join(
        [
            f"{counted(made.num_files, noun='file')} -> {made.directory}",
            *splits,
            to_line("data", {"train": str(made.directory), "tokenizer": used, "seq_len": seq_len}),
        ]
    )
