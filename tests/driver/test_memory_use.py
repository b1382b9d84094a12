"""What workers took beside what was predicted."""

from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.driver.records.memory_use import APART, memory_lines, memory_of
from raymega.driver.records.worker_times import WorkerTime
from raymega.mesh import Mesh
from raymega.plan.job import job_of
from raymega.plan.memory import memory_by_stage
from raymega.plan.parallel_layout import layout_of
from raymega.plan.plan import Plan, straight_routes

CONFIG = resolve(Config(), name="x", seed=1, vocab_size=512)
MESH = Mesh(dp=1, pp=2, tp=1)
PLAN = Plan(
    mesh=MESH, workers=("w0", "w1"), layers=((0, 2), (2, 4)), microbatch_size=4,
    routes=straight_routes(num_microbatches=4, mesh=MESH),
)  # fmt: skip


def told(worker: str, peak_bytes: int) -> WorkerTime:
    return WorkerTime(
        worker=worker, born_t=0.0, from_t=0.0, until_t=1.0, before_s=0.0, seconds={}, peak_bytes=peak_bytes
    )


def test_each_worker_stands_beside_its_stage():
    memory = memory_of([told("w0", 10**8), told("w1", 3 * 10**8), told("w7", 1)], plan=PLAN, config=CONFIG)
    needs = memory_by_stage(job_of(CONFIG), layout_of(PLAN))
    assert {w: (use.peak_bytes, use.predicted_bytes) for w, use in memory.items()} == {
        "w0": (10**8, needs[0].total), "w1": (3 * 10**8, needs[1].total)
    }  # fmt: skip
    (line,) = memory_lines(memory)
    assert line == f"memory: 0.30 GB of w1 at most, {needs[1].total / 1e9:,.2f} GB predicted for its stage ({APART})"


def test_nothing_is_said_of_what_cannot_be_predicted():
    own = Config.model_validate({"model": {"custom": "mine:build", "vocab_size": 512}})
    assert memory_of([told("w0", 1)], plan=PLAN, config=own) == {}
    assert list(memory_lines({})) == []
