"""From the shards that workers saved to a checkpoint that exists: the manifest, in a thread of its own."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from raymega.checkpoint.publish import Published, publish, set_aside, shards_of
from raymega.checkpoint.store import open_store
from raymega.config.schema import Config
from raymega.driver.process.by_name import named
from raymega.layout.checkpoint_manifest import Manifest, TensorInfo
from raymega.plan.plan import WorkerId
from raymega.train.loss_scale import LossScale
from raymega.worker.interface import ShardsSaved

TOKENS_TOTAL, SKIPPED = "tokens_total", "skipped"  # counters that are state; skipped: steps that changed nothing
File = dict[str, Any]  # Any: a line of the manifest, as its writer reports it


@dataclass(frozen=True, slots=True, kw_only=True)
class Imprint:
    """What every manifest of a run says of the run.

    Args:
        kept: what the run keeps of its config, see `going_on.kept_of`.
        tensors: `module:callable` that lists every tensor of a config's state.
    """

    run_id: str
    config_digest: str
    tokenizer: str
    kept: dict[str, Any] = field(default_factory=dict)  # Any: JSON
    tensors: str = "raymega.worker.state:checkpoint_tensors"

    def tensors_of(self, config: Config) -> tuple[TensorInfo, ...]:
        """Every tensor of the state."""
        found: tuple[TensorInfo, ...] = named(self.tensors)(config)  # loads torch: only once something is published
        return found


@dataclass(slots=True, kw_only=True)
class Publisher:
    """Keeps what workers saved until it is published.

    Args:
        directory: URI of the directory of checkpoints.
    """

    config: Config
    imprint: Imprint
    directory: str
    _files: dict[tuple[int, int], dict[WorkerId, tuple[File, ...]]] = field(default_factory=dict)

    def saved(self, worker: WorkerId, report: ShardsSaved) -> None:
        """Remember the files that a worker saved for a step."""
        self._files.setdefault((report.step, report.generation), {})[worker] = report.files

    def publish(
        self, *, step: int, generation: int, workers: Iterable[WorkerId], tokens_total: int, skipped: int,
        scale: LossScale,
    ) -> Published:  # fmt: skip
        """Publish what `workers` saved for `step` in `generation`.

        Raises: StateError if something is missing; OSError if the storage fails.
        """
        assert self.config.run.seed is not None, "a resolved config has a seed"
        saved = self._files.pop((step, generation))
        manifest = Manifest(
            run_id=self.imprint.run_id,
            step=step,
            generation=generation,
            samples=step * self.config.training.batch_size,
            seed=self.config.run.seed,
            config_digest=self.imprint.config_digest,
            tokenizer=self.imprint.tokenizer,
            kept=self.imprint.kept,
            scalars={TOKENS_TOTAL: float(tokens_total), SKIPPED: float(skipped), **scale.to_scalars()},
            tensors=self.imprint.tensors_of(self.config),
            shards=shards_of(file for worker in workers for file in saved[worker]),
        )
        for old in [key for key in self._files if key[0] <= step]:
            del self._files[old]
        return publish(open_store(self.directory), manifest=manifest, keep=self.config.checkpoint.keep)

    def withdraw(self, *, after_step: int) -> None:
        """Set checkpoints later than `after_step` aside: the run has gone back there."""
        set_aside(open_store(self.directory), after_step=after_step)
