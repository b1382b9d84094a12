"""Two to four workers that share one GPU, over gloo: the numbers of a CPU, on every axis, and after a death.

The harness runs on a CPU too, in one case, so that what skips where there is no GPU is known to run.
"""

from collections.abc import Iterator

import pytest
import torch

from raymega.comm.gloo import GlooFabric
from raymega.comm.store import RendezvousStore
from raymega.model.pass_context import PassContext
from raymega.model.stage import blank_stage
from raymega.worker.interface import Assignment, WorkerSettings
from raymega.worker.wires import MakeFabric
from tests.comm.staged import StagedFabric
from tests.worker.killing import SMALL, kill_world
from tests.worker.rig import LIMIT_S, ONE, relative, run_layout, tiny_config

MODEL = (*SMALL.items(), ("num_layers", 4), ("dropout", 0.1), ("tie_embeddings", True))
LAW = 1e-4  # of products on another device
CASES = [
    ((2, 1, 1), {}),
    ((1, 2, 1), {"sequence_parallel": True, "recompute": "selective"}),
    ((1, 1, 2), {"schedule": "zb-v", "chunks": 2}),
    ((2, 1, 2), {"schedule": "interleaved", "chunks": 2, "recompute": "full", "shard_optimizer": "mirrored"}),
]
CASES_HERE = [("cpu", *CASES[-1]), *(pytest.param("cuda:0", *case, marks=pytest.mark.gpu) for case in CASES)]


@pytest.fixture
def wires() -> Iterator[MakeFabric]:
    store = RendezvousStore.open()

    def connect(*, assignment: Assignment, settings: WorkerSettings) -> StagedFabric:
        return StagedFabric(
            GlooFabric.connect(
                store.address, me=settings.worker, generation=assignment.generation, timeout_s=LIMIT_S
            )
        )  # fmt: skip

    yield connect
    store.close()


@pytest.mark.parametrize(("device", "layout", "rest"), CASES_HERE)
def test_workers_on_a_gpu_train_as_one_on_a_cpu(device, layout, rest, wires):
    settings = {"model": MODEL, "steps": 3, "lr": 0.02, "batch_size": 8, "micro_batch_size": 1}
    rest = dict(rest)
    cut = rest.pop("shard_optimizer", "none")
    mine = run_layout(
        layout, device=device, wires=wires, change=lambda plan: {"shard_optimizer": cut}, **rest, **settings
    )  # fmt: skip
    one = run_layout(ONE, **settings)
    assert [r.loss for r in mine.reports] == pytest.approx([r.loss for r in one.reports], rel=LAW)
    assert [r.grad_norm for r in mine.reports] == pytest.approx([r.grad_norm for r in one.reports], rel=LAW)
    assert max(relative(weight, one.weights[name]) for name, weight in mine.weights.items()) < 10 * LAW


@pytest.mark.gpu
@pytest.mark.parametrize("at", ["1B0", "reduce", "apply"])
def test_a_step_that_broke_on_a_gpu_is_done_anew_by_the_living(at, wires):
    with kill_world((2, 1, 2), wires=wires, device="cuda:0") as world:
        world.dies = lambda worker: world.run.workers[worker].orders.stop()
        world.look()
        case = world.kill("w1", at=at)
    assert [report.loss for report in case.reports] == pytest.approx(
        [world.reports[report.step - 1].loss for report in case.reports], rel=LAW
    )


@pytest.mark.parametrize(("kind", "precision", "recompute"), [("llama", "bf16", "selective"), ("gpt2", "fp16", "full")])
def test_a_stage_mixes_no_devices(kind, recompute, precision):
    """On a device without memory, whose tensors meet no other's, as a GPU's do not."""
    model = {"kind": kind, "dropout": 0.1, "num_key_value_heads": 4 if kind == "llama" else None}
    config = tiny_config(model=model, precision=precision, parallelism={"recompute": recompute})
    stage = blank_stage(config, layers=(0, 2), first=True, last=True, team=None, seed=1, device="meta")
    ids = torch.zeros(2, 24, dtype=torch.int64, device="meta")
    y = stage.forward(ids, PassContext(step=0, samples=torch.arange(2), training=True))
    loss = stage.loss_sum(y, ids, ids > 0)
    _, later = stage.backward_to_input(loss, x=ids, grad=torch.ones_like(loss))
    later.run()
    assert (loss.device.type, loss.dtype) == ("meta", torch.float32)
