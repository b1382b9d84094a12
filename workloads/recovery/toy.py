"""The toy of all sides, what a side tells while it runs, and what a kill has cost."""

from dataclasses import dataclass
from itertools import pairwise, takewhile
from pathlib import Path
from statistics import median
from typing import Protocol

from raymega.config.dims import dims_of
from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.config.resolve import resolve
from workloads.bench.plain_model import Sizes
from workloads.recovery.peer import Job

REPLICAS = 3
SAVE_EVERY = 10
VOCAB_SIZE = 2048  # of the built-in tokenizer
STEPS = 100_000  # it is ended from outside
SETS = (
    "data.seq_len=64", "training.batch_size=12", "training.micro_batch_size=2", f"training.steps={STEPS}",
    "training.eval_every=0", "training.warmup_samples=0", "training.lr_schedule=constant", "training.min_lr=0",
    f"checkpoint.every_steps={SAVE_EVERY}", "run.device=cpu", "run.seed=1234",
    f"parallelism.data_parallel_size={REPLICAS}", "parallelism.pipeline_model_parallel_size=1",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A step that entered the weights, at unix time `t`, by so many workers. `step`: from 1; `told_by`: a process."""

    t: float
    step: int
    workers: int
    told_by: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of one kill. Times in seconds from it, less the undisturbed step; `split`: of a side that tells more.

    Args:
        step_s: an undisturbed step.
        next_s: to the next commit of a step that was not committed before.
        next_workers: by how many that was.
        whole_s: to the first such commit by all replicas.
        redone: steps that were committed before the kill and are committed again.
    """

    step_s: float
    next_s: float
    next_workers: int
    whole_s: float
    redone: int
    split: dict[str, float]


class Side(Protocol):
    """Three replicas that train until the block of their context ends."""

    def wait_until_whole(self, kills: int) -> None:
        """Until everyone is there, and whoever is to stand by, after so many kills."""

    def victim(self) -> int:
        """The process of a worker."""

    def commits(self) -> list[Commit]:
        """All of them, in the order in which they came."""

    def split(self, killed_t: float) -> dict[str, float]:
        """What it tells about the newest recovery."""


def job_of_peer() -> Job:
    """The toy as the peer reads it."""
    config = resolve(
        load(preset_text("nano"), source="nano", overrides=SETS), vocab_size=VOCAB_SIZE, name="recovery", seed=1234
    )
    model, training, dims = config.model, config.training, dims_of(config.model)
    sizes = Sizes(
        hidden=dims.hidden, heads=dims.heads, kv_heads=dims.kv_heads, ffn=dims.ffn, vocab=dims.vocab,
        seq_len=config.data.seq_len, eps=model.norm_eps, theta=model.rope_theta, tied=model.tie_embeddings,
        layers=(0, dims.layers), is_first=True, is_last=True, bf16=False,
    )  # fmt: skip
    return Job(
        sizes=sizes, batch_size=training.batch_size, micro_batch_size=training.micro_batch_size, lr=training.lr,
        betas=training.betas, weight_decay=training.weight_decay, clip_grad=training.clip_grad, save_every=SAVE_EVERY,
    )  # fmt: skip


def cost_of(commits: list[Commit], *, killed_t: float, split: dict[str, float]) -> Cost | None:
    """None as long as it is not back at all replicas."""
    before = [commit for commit in commits if commit.t <= killed_t]
    after = [commit for commit in commits if commit.t > killed_t]
    newest = max(commit.step for commit in before)
    fresh = [commit for commit in after if commit.step > newest]
    whole = [commit for commit in fresh if commit.workers == REPLICAS]
    if not whole:
        return None
    step_s = median(later.t - earlier.t for earlier, later in pairwise(before[-9:]))
    return Cost(
        step_s=step_s,
        next_s=fresh[0].t - killed_t - step_s,
        next_workers=fresh[0].workers,
        whole_s=whole[0].t - killed_t - step_s,
        redone=len({commit.step for commit in after if commit.step <= newest}),
        split=split,
    )


def read_commits(file: Path) -> list[Commit]:
    """What a peer has written down."""
    if not file.exists():
        return []
    rows = (line.split() for line in file.read_text().splitlines())
    return [Commit(t=float(t), step=int(n), workers=int(size), told_by=int(process)) for t, n, size, process in rows]


def steps_in_a_row(commits: list[Commit]) -> int:
    """So many by all replicas, up to the newest, told by one process."""
    return sum(
        1 for _ in takewhile(lambda c: (c.workers, c.told_by) == (REPLICAS, commits[-1].told_by), reversed(commits))
    )
