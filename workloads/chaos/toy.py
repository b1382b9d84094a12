"""A run small enough to be broken hundreds of times: a tiny model, and rows that can be told by their content."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from raymega.config.choices import CHUNKS_OF
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.driver.hands.feeder import Sources

VOCABULARY, SEQUENCE = 97, 24
MODEL = {
    "hidden_size": 48, "num_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2, "head_size": 8,
    "ffn_size": 80, "vocab_size": VOCABULARY,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Layout:
    """dp, tp, pp, as people write them; the schedule, and who holds the optimizer state."""

    dp: int
    tp: int
    pp: int
    schedule: str = "1f1b"
    shard_optimizer: str = "none"

    @property
    def size(self) -> int:
        return self.dp * self.tp * self.pp

    def __str__(self) -> str:
        words = [f"dp={self.dp} tp={self.tp} pp={self.pp}"]
        words += [self.schedule] if self.schedule != "1f1b" or self.is_cut else []
        return " ".join([*words, *([self.shard_optimizer] if self.is_cut else [])])

    @property
    def is_cut(self) -> bool:
        """Whether the optimizer state is cut over the replicas."""
        return self.shard_optimizer != "none"

    @property
    def chunks(self) -> int:
        """Virtual stages on a stage."""
        return CHUNKS_OF[self.schedule][0] or 1


def config_of(
    layout: Layout, *, steps: int, every_steps: int = 0, batch_size: int = 12, model: Mapping[str, object] = MODEL,
    optimizer: str = "sgd", **elastic: object,
) -> Config:  # fmt: skip
    """A run on `layout`, with a layer for every chunk; plain SGD shows every wrong factor."""
    layers = max(int(str(model["num_layers"])), layout.pp * layout.chunks)
    return resolve(
        Config.model_validate(
            {
                "model": {**model, "num_layers": layers},
                "data": {"seq_len": SEQUENCE},
                "parallelism": {
                    "data_parallel_size": layout.dp,
                    "tensor_model_parallel_size": layout.tp,
                    "pipeline_model_parallel_size": layout.pp,
                    "schedule": layout.schedule,
                    "shard_optimizer": layout.shard_optimizer,
                },
                "training": {
                    "steps": steps, "batch_size": batch_size, "micro_batch_size": 2, "optimizer": optimizer,
                    "lr": 0.02,
                    "weight_decay": 0.0, "clip_grad": 0.0,
                },
                "checkpoint": {"every_steps": every_steps},
                "elastic": {"lease_s": 5.0, "orphan_lease_s": 20.0, "group_timeout_s": 30.0, "max_restarts": 50}
                | elastic,
            }
        ),
        name="toy",
        seed=1234,
        vocab_size=VOCABULARY,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Rows:
    """A whole batch."""

    step: int
    samples: np.ndarray
    ids: np.ndarray
    mask: np.ndarray | None
    trained_tokens: int


class Stream:
    """Batches from step `first` on."""

    def __init__(self, first: int, end: int, *, batch_size: int) -> None:
        self._first, self._end, self._batch_size = first, end, batch_size

    def __iter__(self) -> Iterator[Rows]:
        for step in range(self._first, self._end):
            samples = np.arange(step * self._batch_size, (step + 1) * self._batch_size)
            column = samples[:, None]
            ids = (5 * column + np.arange(SEQUENCE + 1) * (1 + column % 3)) % VOCABULARY
            yield Rows(
                step=step, samples=samples, ids=ids.astype(np.int32), mask=None,
                trained_tokens=self._batch_size * SEQUENCE,
            )  # fmt: skip

    def close(self) -> None:
        """Nothing is held."""


def sources_of(config: Config) -> Sources:
    size, steps = config.training.batch_size, config.training.steps
    return Sources(
        train=lambda step: Stream(step, steps, batch_size=size),
        valid=lambda: Stream(0, 0, batch_size=size),
        steps=steps,
    )
