"""What is measured: `config.yaml` as values, and the raymega config and plan of each contest.

shape  nano | small        one       dp=1 pp=1      plain torch loop
       | small-bf16        ddp       dp=2 pp=1      torchrun, DistributedDataParallel
contest                    pipeline  dp=1 pp=2      torchrun, torch.distributed.pipelining Schedule1F1B
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from raymega.config.load import load
from raymega.config.presets import preset_text
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.plan.plan import Plan
from raymega.plan.planner import plan_for

Contest = Literal["one", "ddp", "pipeline"]
MESHES: dict[Contest, tuple[int, int]] = {"one": (1, 1), "ddp": (2, 1), "pipeline": (1, 2)}
"""(dp, pp)."""
FILE = Path(__file__).with_name("config.yaml")
VOCAB_SIZE = 2048  # of the built-in tokenizer
STEADY = (
    "training.lr_schedule=constant", "training.min_lr=0", "training.warmup_samples=0", "training.eval_every=0",
    "checkpoint.every_steps=0", "run.device=cpu",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class BubbleSettings:
    """Stand-in stages: how many under 1F1B, other schedules, what a stage takes, how long the measurement lasts."""

    stages: tuple[int, ...]
    schedules: tuple[str, ...]
    forward_s: float
    microbatches: int
    steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """`config.yaml`."""

    shapes: dict[str, tuple[str, tuple[str, ...]]]  # name -> preset, overrides
    pairs: dict[str, int]
    block_s: float
    goals: dict[str, dict[Contest, float]]  # of each shape
    bubble: BubbleSettings
    run_set: tuple[str, ...]
    warm_up_steps: int

    @classmethod
    def read(cls) -> "Settings":
        data = yaml.safe_load(FILE.read_text())
        bubble = data["bubble"]
        return cls(
            shapes={name: (shape["preset"], tuple(shape["set"])) for name, shape in data["shapes"].items()},
            pairs=data["pairs"],
            block_s=data["block_s"],
            goals=data["goals"],
            bubble=BubbleSettings(
                **{**bubble, "stages": tuple(bubble["stages"]), "schedules": tuple(bubble["schedules"])}
            ),
            run_set=tuple(data["run"]["set"]),
            warm_up_steps=data["run"]["warm_up_steps"],
        )

    def config(self, shape: str, contest: Contest) -> Config:
        """The config of a contest, resolved; both contenders read their sizes from it."""
        preset, changes = self.shapes[shape]
        dp, pp = MESHES[contest]
        mesh = (f"parallelism.data_parallel_size={dp}", f"parallelism.pipeline_model_parallel_size={pp}")
        loaded = load(preset_text(preset), source=preset, overrides=(*changes, *STEADY, *mesh))
        return resolve(loaded, vocab_size=VOCAB_SIZE, name=f"bench-{shape}-{contest}", seed=1234)


def plan_of(config: Config) -> Plan:
    """raymega's own plan, all workers on one node."""
    parallelism = config.parallelism
    size = int(parallelism.data_parallel_size) * int(parallelism.pipeline_model_parallel_size)
    return plan_for(config, workers={f"w{rank}": "here" for rank in range(size)}).plan
