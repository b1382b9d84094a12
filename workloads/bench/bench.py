"""Everything in one run, printed as it is done: contests in pairs, bubbles, a whole run.

stand-ins and bubbles      processes of their own, before Ray is started
contests                   nano, small, small-bf16 x one, ddp, pipeline: raymega's workers on Ray beside the peer
whole run                  `raymega train`, for waits, stalls and the controller
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from raymega.config.dims import dims_of
from raymega.config.schema import Config
from raymega.driver.cluster.ray_session import ray_session
from raymega.model_shape import parameter_count
from workloads.bench.bubble import real_bubble, stand_in_bubble
from workloads.bench.contender import peer_of
from workloads.bench.overlap import overlap_lines
from workloads.bench.pairs import Outcome, alternate
from workloads.bench.peer import Job
from workloads.bench.raymega_side import raymega_workers
from workloads.bench.repairable import WORKERS, repairable_lines
from workloads.bench.same_work import first_values
from workloads.bench.settings import MESHES, Contest, Settings, plan_of
from workloads.bench.whole_run import whole_run
from workloads.parts import asked_of

AGAINST: dict[Contest, str] = {
    "one": "one worker / plain torch loop",
    "ddp": "dp=2 / torchrun DDP",
    "pipeline": "pp=2 1F1B / torchrun Schedule1F1B",
}
SCHEDULED_STAGES = 4
SHARE_GOAL = 0.01


def main(words: tuple[str, ...]) -> None:
    """Measure what is wanted: `nano/ddp`, `bubble`, `overlap`, `repairable`, `run`; nothing named is everything."""
    torch.set_num_threads(1)
    os.environ.setdefault("RAY_worker_niceness", "0")  # Ray's default would run one side at a lower priority
    settings = Settings.read()
    contests = {f"{shape}/{contest}": (shape, contest) for shape in settings.shapes for contest in MESHES}
    parts = ("bubble", "overlap", *contests, "repairable", "run")
    wanted = asked_of(words, program="workloads.bench", parts=parts, hint="; workloads.bench.predicted by itself")
    print(machine())
    if "bubble" in wanted:
        print_lines(bubbles(settings))
    if "overlap" in wanted:
        print_lines(overlap_lines())
    chosen = [contests[part] for part in wanted if part in contests]
    if chosen:
        with ray_session(cpus=2):
            rows = [contest_row(settings, shape=shape, contest=contest) for shape, contest in chosen]
        print_lines(
            (
                "",
                "raymega / peer, tokens/s (and processor time, peer / raymega); median of pairs with its 95 % interval",
                *rows,
            )
        )
    if "repairable" in wanted:
        with ray_session(cpus=WORKERS):
            print_lines(repairable_lines(settings))
    if "run" in wanted:
        print_lines(run_lines(settings))


def machine() -> str:
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; one thread per worker; torch {torch.__version__}"


def contest_row(settings: Settings, *, shape: str, contest: Contest) -> str:
    """Run a contest; its line of the table."""
    config = settings.config(shape, contest)
    print(f"\n{shape}, {AGAINST[contest]}: {shape_of(config)}", flush=True)
    outcome = run_contest(settings, config=config, shape=shape, contest=contest)
    goal, ratio = settings.goals[shape][contest], outcome.ratio
    verdict = "met" if ratio.low >= goal else "missed"
    tokens = config.training.batch_size * config.data.seq_len
    ours, theirs = (tokens / min(block.step_s for block in blocks) for blocks in (outcome.raymega, outcome.peer))
    return (
        f"{shape:<10} {AGAINST[contest]:<34} {ratio}  goal {goal} {verdict:<6}  A/A {outcome.same}  "
        f"processor {outcome.work}  "
        f"{len(outcome.peer)} pairs, best {ours:,.0f} and {theirs:,.0f} tokens/s, losses within {outcome.loss_gap:.0e}"
    )


def run_contest(settings: Settings, *, config: Config, shape: str, contest: Contest) -> Outcome:
    """Both sides up, then pairs; Ray is connected."""
    plan = plan_of(config)
    with tempfile.TemporaryDirectory(prefix="rm-bench-") as name:
        folder = Path(name)
        torch.save(first_values(config), folder / "values.pt")
        job = Job(
            contest=contest, config=config, layers=plan.layers,
            values=str(folder / "values.pt"), address=str(folder / "socket"),
        )  # fmt: skip
        with raymega_workers(config, plan, folder=name) as ours, peer_of(job, folder=folder) as peer:
            outcome = alternate(
                ours, peer, precision=config.training.precision, num_pairs=settings.pairs[shape],
                block_s=settings.block_s, tell=_tell,
            )  # fmt: skip
            _tell(f"raymega's seconds: {mean_phases(ours.phases)}")
    return outcome


def mean_phases(phases: list[dict[str, float]]) -> str:
    """Mean seconds of the phases of the reporting worker, the first step left out."""
    counted = phases[1:]
    return ", ".join(f"{name} {sum(p[name] for p in counted) / len(counted):.4f}" for name in counted[0])


def bubbles(settings: Settings) -> Iterator[str]:
    yield "\nbubble, share of the step; stand-in stages wait a known time, real ones compute"
    for stages in settings.bubble.stages:
        yield f"  stand-in {stand_in_bubble(settings.bubble, stages=stages)}"
    for schedule in settings.bubble.schedules:
        yield f"  stand-in {stand_in_bubble(settings.bubble, stages=SCHEDULED_STAGES, schedule=schedule)}"
    for shape in settings.shapes:
        yield f"  {shape:<8} {real_bubble(settings.config(shape, 'pipeline'), num_steps=settings.bubble.steps)}"


def run_lines(settings: Settings) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="rm-bench-") as folder:
        run = whole_run(settings, folder=Path(folder))
    yield f"\nwhole run, nano with {' '.join(settings.run_set)}: {run.steps} steps of {run.step_s:.3f} s"
    yield f"  data wait         {run.data_share:.3%} of the step, goal < 1 % {_met(run.data_share < SHARE_GOAL)}"
    stall = f"{run.checkpoint_share:.3%} of the step with a save every {run.steps // max(1, run.saves)} steps"
    yield f"  checkpoint stall  {stall}, goal < 1 % {_met(run.checkpoint_share < SHARE_GOAL)}"
    yield f"  controller        {1e3 * run.controller_s:.1f} ms of processor time a step"


def shape_of(config: Config) -> str:
    """The sizes, in words."""
    model, training, dims = config.model, config.training, dims_of(config.model)
    return (
        f"{parameter_count(model, seq_len=config.data.seq_len).total / 1e6:.1f} M parameters, "
        f"hidden {dims.hidden}, layers {dims.layers}, heads {dims.heads} ({dims.kv_heads} kv), ffn {dims.ffn}, "
        f"vocabulary {dims.vocab}{' tied' if model.tie_embeddings else ''}, seq {config.data.seq_len}, "
        f"batch {training.batch_size} in micro-batches of {training.micro_batch_size}, "
        f"{training.precision}, AdamW, clipped"
    )


def print_lines(lines: "Iterator[str] | tuple[str, ...]") -> None:
    for line in lines:
        print(line, flush=True)


def _tell(line: str) -> None:
    print(f"  {line}", flush=True)


def _met(is_met: bool) -> str:
    return "met" if is_met else "missed"
