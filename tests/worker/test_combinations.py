"""Combinations that nobody wrote down: laws 1 and 2 for any of them, and after any death, against one worker in fp32.

Limits are those of the tests of each piece (`test_law_one`, `test_precision`, `test_coded_sums`), after three steps.
`make test` draws a few, always the same; the soak draws many more.
"""

import random
import threading
from dataclasses import dataclass
from functools import lru_cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raymega.comm.local import WorkerKilled
from raymega.config.choices import CHUNKS_OF
from raymega.config.schema import Config
from raymega.plan.plan import Plan
from raymega.plan.repairs import step_programs_of
from raymega.worker import step
from tests.worker.rig import (
    LIMIT_S,
    ONE,
    Recovered,
    Result,
    ThreadRun,
    relative,
    run_layout,
    thread_run,
    tiny_config,
    tiny_plan,
)

MODEL = {
    "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "head_size": 6, "ffn_size": 20,
    "num_layers": 6,
}  # fmt: skip
STEPS, BATCH = 3, 12
LAYOUTS = [(2, 1, 1), (1, 2, 1), (1, 1, 2), (3, 1, 2), (2, 2, 1), (1, 2, 2), (2, 1, 3), (2, 2, 2)]
SGD = {"lr": 0.02}
ADAM = {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1, "eps": 1e-5}
LIMITS = {"fp32": 1e-5, "bf16": 5e-3, "fp16": 1e-3}
CODED = 2e-2
TABLE = "mine.csv"
SEEDS = st.integers(0, 1 << 32)


@dataclass(frozen=True, kw_only=True)
class Case:
    layout: tuple[int, int, int]
    schedule: str
    precision: str
    shard_optimizer: str
    codec: str
    recompute: str | tuple[int, ...]
    model: tuple[tuple[str, object], ...]
    sequence_parallel: bool
    masked: bool
    adam: bool
    clip_grad: float
    bucket_bytes: int
    dies: bool
    dice: int

    @property
    def training(self) -> dict[str, object]:
        rest = ADAM if self.adam else SGD
        return {"steps": STEPS, "batch_size": BATCH, "micro_batch_size": 1, "clip_grad": self.clip_grad, **rest}

    @property
    def outlives(self) -> bool:
        """Whether a worker dies in it; not where the state would be gone with it."""
        return self.dies and self.layout[0] > 1 and self.shard_optimizer != "zero1"

    @property
    def is_coded(self) -> bool:
        return self.codec != "none" and self.layout[0] > 1


def case_of(seed: int) -> Case:
    """One of all, as likely as any other."""
    dice = random.Random(seed)
    layout, kind = dice.choice(LAYOUTS), dice.choice(["llama", "gpt2"])
    model = {"kind": kind, "dropout": dice.choice([0.0, 0.1]), "tie_embeddings": dice.random() < 0.5}
    model |= {"num_key_value_heads": None} if kind == "gpt2" else {}
    cut = dice.choice(["none", "none", "zero1", "mirrored"])
    return Case(
        layout=layout,
        schedule=dice.choice([*CHUNKS_OF, TABLE]) if layout[2] > 1 else "1f1b",
        precision=dice.choice(sorted(LIMITS)),
        shard_optimizer=cut,
        codec=dice.choice(["none", "bf16", "fp16", "int8"]) if cut == "none" else "none",
        recompute=dice.choice(["none", "selective", "full", (0, 4)]),
        model=tuple((MODEL | model).items()),
        sequence_parallel=layout[1] > 1 and dice.random() < 0.5,
        masked=dice.random() < 0.5,
        adam=dice.random() < 0.5,
        clip_grad=dice.choice([0.0, 0.5]),
        bucket_bytes=dice.choice([512, 8192, step.BUCKET_BYTES]),
        dies=dice.random() < 0.5,
        dice=seed,
    )


@lru_cache
def by_one(model: tuple[tuple[str, object], ...], masked: bool, adam: bool, clip_grad: float) -> Result:
    rest = ADAM if adam else SGD
    return run_layout(
        ONE, model=model, masked=masked, steps=STEPS, batch_size=BATCH, micro_batch_size=2, clip_grad=clip_grad, **rest
    )  # fmt: skip


def plan_of(case: Case, config: Config) -> Plan:
    dp, tp, pp = case.layout
    fields = {"sequence_parallel": case.sequence_parallel, "shard_optimizer": case.shard_optimizer}
    if case.schedule == TABLE:
        fields["table"] = table_of(stages=pp, microbatches=BATCH // dp)
    chunks = CHUNKS_OF.get(case.schedule, (1,))[0] or 2
    return tiny_plan(config, dp=dp, tp=tp, pp=pp, chunks=chunks, schedule=case.schedule, **fields)


def table_of(*, stages: int, microbatches: int) -> tuple[str, ...]:
    """A schedule as a table of its actions, a row a stage."""
    config = tiny_config(model=MODEL, batch_size=microbatches, micro_batch_size=1)
    programs = step_programs_of(tiny_plan(config, dp=1, tp=1, pp=stages, schedule="zb-h1"))
    return tuple(",".join(map(str, program)) for program in programs)


def train(case: Case) -> None:
    """Train a drawn case, with a death in its second step or without, and hold it against one worker."""
    parallelism = {
        "recompute": case.recompute, "sequence_parallel": case.sequence_parallel, "grad_compression": case.codec
    }  # fmt: skip
    config = tiny_config(
        model=dict(case.model), precision=case.precision, parallelism=parallelism, **case.training
    )  # fmt: skip
    plan = plan_of(case, config)
    with pytest.MonkeyPatch.context() as patch, thread_run(config, num_workers=plan.mesh.size) as run:
        patch.setattr(step, "BUCKET_BYTES", case.bucket_bytes)
        run.assign(plan)
        calls = list[str]()  # of groups in a step, by who made them
        run.hub.on_op = lambda worker, key, op: calls.append(worker)
        reports = run.train(plan, until=1, masked=case.masked)
        if case.outlives:
            found = after_a_death(run, plan, case, calls=calls)
            reports, plan = reports[: found.step], found.plan  # what the dead have told may be told again
            reports += run.train(plan, generation=2, first=found.step, until=STEPS, masked=case.masked)
        else:
            reports += run.train(plan, first=1, until=STEPS, masked=case.masked)
        check(case, Result(reports=reports, weights=run.weights(plan)))


def after_a_death(run: ThreadRun, plan: Plan, case: Case, *, calls: list[str]) -> Recovered:
    """Kill a worker in the second step, in a call of a group that is drawn from as many as a step has of it."""
    dice = random.Random(case.dice)
    victim, died = dice.choice(plan.workers), threading.Event()
    left = [dice.randrange(calls.count(victim))]

    def kill(worker: str, key: str, op: str) -> None:
        if worker != victim or died.is_set():
            return
        left[0] -= 1
        if left[0] < 0:
            run.hub.kill(victim)
            died.set()
            raise WorkerKilled(worker)

    run.hub.on_op = kill
    run.start(plan, first=1, until=STEPS, masked=case.masked)
    assert died.wait(LIMIT_S), f"{victim} makes too few calls"
    return run.recover(plan, dead={victim}, generation=2)


def check(case: Case, mine: Result) -> None:
    one, limit = by_one(case.model, case.masked, case.adam, case.clip_grad), LIMITS[case.precision]
    assert {a.step for a in mine.reports} >= {1, STEPS}  # a decided step may have died with who tells of it
    for a in mine.reports:
        b = one.reports[a.step - 1]
        assert not a.skipped
        assert a.loss == pytest.approx(b.loss, rel=CODED if case.is_coded else limit)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=5 * (CODED if case.is_coded else limit))
    if case.precision == "fp32" and not case.is_coded and not case.adam:
        assert max(relative(weight, one.weights[name]) for name, weight in mine.weights.items()) < limit


def drawn(examples: int):
    return settings(max_examples=examples, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@drawn(4)
@given(SEEDS)
def test_any_combination_trains_as_one_worker_does_and_outlives_a_death(seed: int) -> None:
    train(case_of(seed))


@pytest.mark.soak
@pytest.mark.timeout(800)
@drawn(60)
@given(SEEDS)
def test_many_combinations_train_as_one_worker_does(seed: int) -> None:
    train(case_of(seed))
