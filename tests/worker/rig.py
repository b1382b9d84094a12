"""Whole runs on threads of one process: every worker is a real `Worker`, only the wires are local."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from raymega.comm.local import LocalFabric, LocalHub
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.control.arbitration import Decided, Promise, Ruling, Version, rule
from raymega.mesh import Mesh
from raymega.pipeline.actions import Action
from raymega.pipeline.missing import TeamReport
from raymega.plan.plan import Plan, straight_routes
from raymega.plan.repairs import PlanRepair, orders_of, repair_plan
from raymega.plan.stages import balanced_layers
from raymega.worker.interface import (
    Assignment,
    EvalReport,
    GenerationBroken,
    MicrobatchRows,
    Ready,
    Report,
    StepBatch,
    StepReport,
    WorkerFailed,
    WorkerSettings,
)
from raymega.worker.wires import MakeFabric
from raymega.worker.worker import Worker
from tests.waiting import eventually

LIMIT_S = 60.0
TINY = {
    "hidden_size": 96, "num_layers": 10, "num_attention_heads": 12, "num_key_value_heads": 4, "head_size": 8,
    "ffn_size": 160, "vocab_size": 97,
}  # fmt: skip
ONE = (1, 1, 1)
LAYOUTS = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 2, 1), (2, 1, 2), (1, 2, 2), (2, 2, 2)]
"""(dp, tp, pp)."""


def tiny_config(
    *, model: dict | None = None, parallelism: dict | None = None, elastic: dict | None = None, **training: object
) -> Config:
    """The tiny shape: sizes all different, vocabulary prime; SGD shows every wrong factor."""
    return resolve(
        Config.model_validate(
            {
                                "model": {**TINY, **(model or {})},
                "data": {"seq_len": 24},
                "parallelism": parallelism or {},
                "elastic": elastic or {},
                "training": {
                    "steps": 10, "batch_size": 8, "micro_batch_size": 2, "optimizer": "sgd", "lr": 0.1,
                    "weight_decay": 0.0, "clip_grad": 0.0, **training,
                },
            }
        ),
        name="tiny",
        seed=1234,
        vocab_size=97,
    )  # fmt: skip


def tiny_plan(config: Config, *, dp: int, tp: int, pp: int, chunks: int = 1, **fields: object) -> Plan:
    """The plan of (dp, tp, pp) with straight routes; `chunks` a stage."""
    mesh = Mesh(dp=dp, pp=pp, tp=tp)
    training = config.training
    num_microbatches = training.batch_size // training.micro_batch_size
    return Plan(
        mesh=mesh,
        workers=tuple(f"w{rank}" for rank in range(mesh.size)),
        layers=balanced_layers(config.model.num_layers, num_stages=pp * chunks),
        routes=straight_routes(num_microbatches=num_microbatches, mesh=mesh),
        microbatch_size=training.micro_batch_size,
        **fields,
    )


def rows_of(samples: np.ndarray, *, seq: int, vocab: int) -> np.ndarray:
    """Rows that can be told by their content: row k counts from 5 k in steps of 1 + k mod 3, modulo the vocabulary."""
    column = samples[:, None]
    return ((5 * column + np.arange(seq + 1) * (1 + column % 3)) % vocab).astype(np.int32)


def batch_of(config: Config, step: int, *, masked: bool = False, split: str = "train") -> StepBatch:
    """Rows that depend on (seed, step, sample) alone; `masked`: unequal numbers of trained targets."""
    training, seq = config.training, config.data.seq_len
    samples = np.arange(step * training.batch_size, (step + 1) * training.batch_size)
    rng = np.random.default_rng([7, step, split == "valid"])
    ids = rows_of(samples, seq=seq, vocab=config.model.vocab_size)
    mask = rng.random((len(samples), seq)) < rng.random((len(samples), 1)) if masked else None
    size = training.micro_batch_size
    rows = {
        m: MicrobatchRows(
            samples=samples[m * size : (m + 1) * size],
            ids=ids[m * size : (m + 1) * size],
            mask=None if mask is None else mask[m * size : (m + 1) * size],
        )
        for m in range(len(samples) // size)
    }
    trained = ids[:, 1:].size if mask is None else int(mask.sum())
    return StepBatch(split=split, step=step, after_step=step, trained_tokens=trained, microbatches=rows)


@dataclass(frozen=True, kw_only=True)
class Recovered:
    """How a run goes on: `missing` is what had to be done (again) of the step after `step` committed ones."""

    plan: Plan
    step: int
    missing: frozenset[Action]
    kept: Mapping[str, frozenset[Action]]
    anew: frozenset[str]
    reason: str


def _promise(generation: int, name: str, left: GenerationBroken) -> Promise:
    decided = left.decided
    return Promise(
        worker=name,
        generation=generation,
        held=Version(step=left.committed, generation=left.decided_in),
        decided=None
        if decided is None
        else Decided(version=Version(step=decided.step, generation=decided.generation), facts=decided.facts),
    )


@dataclass(kw_only=True)
class ThreadRun:
    """Workers as threads, in one generation at a time."""

    config: Config
    workers: dict[str, Worker]
    hub: LocalHub
    seen: dict[str, int] = field(default_factory=dict)
    reports: list[tuple[str, Report]] = field(default_factory=list)

    def assign(self, plan: Plan, *, generation: int = 1, step: int = 0, **fields: object) -> None:
        for name in plan.living:
            self.workers[name].start(
                Assignment(generation=generation, plan=plan, step=step, store=("127.0.0.1", 0), **fields)
            )
        self.wait_for(Ready, workers=plan.living, generation=generation)

    def train(self, plan: Plan, *, generation: int = 1, first: int = 0, until: int, masked: bool = False,
              save_at: tuple[int, ...] = ()) -> list[StepReport]:  # fmt: skip
        """Feed and run steps `first` to `until`; the reports of those steps."""
        batches = tuple(batch_of(self.config, step, masked=masked) for step in range(first, until))
        for name in plan.living:
            self.workers[name].feed(generation, batches)
            self.workers[name].grant(generation, until, save_at)
        done: list[StepReport] = []
        while not done or done[-1].step < until:
            done.append(self.wait_for(StepReport, workers=plan.living[:1], generation=generation)[0])
        self.settle(plan, committed=until)
        return done

    def settle(self, plan: Plan, *, committed: int) -> None:
        """Wait until everyone has applied what the first worker reported, and has the weights that come of it."""
        states = [self.workers[name].state for name in plan.living]
        eventually(lambda: all(state.committed >= committed for state in states))
        eventually(lambda: all(chunk.is_whole for state in states for chunk in state.chunks.values()))

    def start(self, plan: Plan, *, until: int, generation: int = 1, first: int = 0, masked: bool = False) -> None:
        """Feed and grant, and do not wait."""
        batches = tuple(batch_of(self.config, step, masked=masked) for step in range(first, until))
        for name in plan.living:
            self.workers[name].feed(generation, batches)
            self.workers[name].grant(generation, until)

    def leaving(self, name: str) -> GenerationBroken:
        """What `name` says when it leaves its generation."""
        while True:
            pulse = self.workers[name].pulse(self.seen.get(name, 0), LIMIT_S)
            assert pulse.reports, f"{name} never left, in phase {pulse.phase}"
            self.seen[name], report = pulse.reports[0]
            self.reports.append((name, report))
            if isinstance(report, WorkerFailed):
                raise report.error
            if isinstance(report, GenerationBroken):
                return report

    def recover(self, plan: Plan, *, dead: set[str], generation: int, **fields: object) -> Recovered:
        """What a controller does: promises, a ruling, a repair of the step that broke, and the next generation."""
        living = [name for name in plan.living if name not in dead]
        for name in living:
            self.workers[name].abort(generation - 1)
        left = {name: self.leaving(name) for name in living}
        ruling = rule(generation, members=living, answers=[_promise(generation, *x) for x in left.items()], fenced=())
        assert isinstance(ruling, Ruling)
        step = ruling.version.step
        reports = {name: left[name].work for name in living}
        for name in ruling.apply:  # it has reduced the step that the others decided; of the next it has done nothing
            reports[name] = TeamReport(stages=reports[name].stages)
        found = repair_plan(plan, reports=reports)
        assert isinstance(found, PlanRepair), found
        orders, settle = orders_of(found), ruling.decided.facts if ruling.decided is not None else None
        for name in found.plan.living:
            self.workers[name].start(
                Assignment(
                    generation=generation, plan=found.plan, step=step, store=("127.0.0.1", 0), keep_state=True,
                    settle=settle, repair=orders[name], links=tuple(found.links), **fields,
                )
            )  # fmt: skip
        self.wait_for(Ready, workers=found.plan.living, generation=generation)
        return Recovered(
            plan=found.plan, step=step, missing=found.repair.missing, kept=found.repair.kept, anew=found.repair.anew,
            reason=found.repair.reason,
        )  # fmt: skip

    def wait_for(self, kind: type, *, workers: tuple[str, ...], generation: int) -> list:
        """One report of `kind` from each worker; anything that went wrong is raised."""
        return [self._next(name, kind, generation) for name in workers]

    def _next(self, name: str, kind: type, generation: int) -> Report:
        while True:
            pulse = self.workers[name].pulse(self.seen.get(name, 0), LIMIT_S)
            assert pulse.reports, f"{name} said nothing for {LIMIT_S} s in phase {pulse.phase}"
            number, report = pulse.reports[0]
            self.seen[name] = number
            self.reports.append((name, report))
            if isinstance(report, kind) and report.generation == generation:
                return report
            if isinstance(report, WorkerFailed):
                raise report.error
            broke = isinstance(report, GenerationBroken) and report.generation >= generation
            assert not broke, f"{name}: {report.reason}"

    def weights(self, plan: Plan, kind: str = "param") -> dict[str, torch.Tensor]:
        """Whole tensors gathered from the boxes of replica 0, after checking that all replicas hold the same bits."""
        whole: dict[str, torch.Tensor] = {}
        for name in plan.living:
            for item in self.workers[name].state.items():
                if item.kind != kind:
                    continue
                tensor = whole.setdefault(item.name, torch.full(item.shape, torch.nan))
                region = tensor[tuple(slice(o, e) for o, e in zip(item.box.offsets, item.box.ends, strict=True))]
                held, mine = ~region.isnan(), item.tensor.cpu()
                assert torch.equal(region[held], mine[held]), f"{name} holds other bits of {item.name}"
                region.copy_(mine)
        assert not any(t.isnan().any() for t in whole.values()), "every element is held by someone"
        return whole

    def losses(self) -> list[EvalReport]:
        return [report for _, report in self.reports if isinstance(report, EvalReport)]


@contextmanager
def thread_run(
    config: Config,
    *,
    num_workers: int,
    tmp_path: object = "",
    unbuffered: bool = False,
    wires: MakeFabric | None = None,
    device: str = "cpu",
) -> Iterator[ThreadRun]:
    """Workers w0, w1, ...; stopped at the end, and checked to be. `wires`: other than those of threads."""
    hub = LocalHub(unbuffered=unbuffered)

    def fabric(*, assignment: Assignment, settings: WorkerSettings) -> LocalFabric:
        return LocalFabric(hub, me=settings.worker, generation=assignment.generation, timeout_s=LIMIT_S)

    workers = {
        name: Worker(
            WorkerSettings(
                worker=name,
                config=config,
                run_dir=str(tmp_path),
                checkpoint_dir=f"{tmp_path}/checkpoints",
                device=device,
            ),
            fabric=wires or fabric,
        )
        for name in (f"w{n}" for n in range(num_workers))
    }
    run = ThreadRun(config=config, workers=workers, hub=hub)
    try:
        yield run
    finally:
        for worker in workers.values():
            worker.orders.stop()
        for worker in workers.values():
            worker.stop()


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run has to be the same in."""

    reports: list[StepReport]
    weights: dict[str, torch.Tensor]


def run_layout(
    layout: tuple[int, int, int], *, steps: int = 10, masked: bool = False, unbuffered: bool = False,
    model: tuple[tuple[str, object], ...] = (), change: Callable[[Plan], dict[str, object]] = lambda _: {},
    schedule: str = "1f1b", chunks: int = 1, sequence_parallel: bool = False, recompute: object = "none",
    wires: MakeFabric | None = None, device: str = "cpu", **training: object,
) -> Result:  # fmt: skip
    """Train the tiny shape on a layout (dp, tp, pp)."""
    dp, tp, pp = layout
    parallelism = {"sequence_parallel": sequence_parallel, "recompute": recompute}
    config = tiny_config(model=dict(model), parallelism=parallelism, **training)
    plan = tiny_plan(config, dp=dp, tp=tp, pp=pp, chunks=chunks, schedule=schedule, sequence_parallel=sequence_parallel)
    plan = replace(plan, **change(plan))
    with thread_run(
        config, num_workers=plan.mesh.size, unbuffered=unbuffered, wires=wires, device=device
    ) as run:  # fmt: skip
        run.assign(plan)
        reports = run.train(plan, until=steps, masked=masked)
        return Result(reports=reports, weights=run.weights(plan))


def relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """max|a - b| / max|b|, the measure of law 1."""
    return float((a - b).abs().max() / b.abs().max().clamp_min(torch.finfo(b.dtype).tiny))
