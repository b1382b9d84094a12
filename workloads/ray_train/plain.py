"""The same model, data, rates and first values in plain Ray Train: DistributedDataParallel in a loop of its own.

python -m workloads.ray_train.plain STORAGE [STEPS]       the same losses, up to rounding

    lost worker       the whole group is replaced, goes on from the newest checkpoint, does the steps since then again
    fewer devices     the same, with fewer replicas; a model that does not fit one device does not train
    layout            data parallel only: no stages, no shards
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import ray.train
import ray.train.torch
import torch
from torch import nn

from raymega.config.schema import Config
from raymega.data.fetch import batches_of
from raymega.data.open_data import open_data
from raymega.driver.preflight import resolved
from raymega.driver.records.reading import config_from
from raymega.train.lr_schedule import lr_at
from workloads.bench.peer import adamw, loss_sum, sizes_of
from workloads.bench.plain_model import PlainDecoder, fill
from workloads.bench.same_work import first_values

WORKERS, SAVE_EVERY = 2, 10


def train_loop(told: dict[str, Any]) -> None:
    """One worker: its rows of each step, DDP's sum, an update, a report."""
    config = Config.model_validate(told)
    torch.set_num_threads(1)
    context, training = ray.train.get_context(), config.training
    plain = PlainDecoder(sizes_of(config, layers=(0, config.model.num_layers)))
    fill(plain, first_values(config))
    optimizer, first = adamw(plain, config), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint is not None:
        with checkpoint.as_directory() as folder:
            saved = torch.load(Path(folder) / "state.pt", weights_only=False)
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    model = ray.train.torch.prepare_model(plain)
    assert config.run.seed is not None, "the config is resolved"
    fetch = open_data(config.data, seed=config.run.seed).train_fetch(batch_size=training.batch_size)
    for step in range(first, training.steps):
        (batch,) = batches_of(fetch.table(np.array([step])), batch_size=training.batch_size)
        ids = torch.from_numpy(batch.ids).long()[context.get_world_rank() :: context.get_world_size()]
        for group in optimizer.param_groups:
            group["lr"] = lr_at(training, samples=(step + 1) * training.batch_size)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_sum(model(ids[:, :-1]), ids[:, 1:]) / batch.trained_tokens
        (loss * context.get_world_size()).backward()  # DDP divides by the number of replicas
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_grad)
        optimizer.step()
        total = loss.detach()
        torch.distributed.all_reduce(total)
        _report(step + 1, loss=float(total), model=plain, optimizer=optimizer, last=step + 1 == training.steps)


def _report(step: int, *, loss: float, model: nn.Module, optimizer: torch.optim.Optimizer, last: bool) -> None:
    """Metrics at each step; a checkpoint of rank 0 now and then."""
    metrics, is_first = {"step": step, "loss": loss}, ray.train.get_context().get_world_rank() == 0
    if is_first:
        print(f"step: {step}  loss: {loss:.4f}", flush=True)
    if not (is_first and (last or step % SAVE_EVERY == 0)):
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, Path(folder) / "state.pt")
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def fit(storage: Path, *, steps: int, name: str = "plain") -> ray.train.Result:
    """Train the model of the preset nano for so many steps."""
    config, _ = resolved(
        config_from("nano", overrides={"training": {"steps": steps}, "run": {"name": name, "seed": 7}})
    )
    trainer = ray.train.torch.TorchTrainer(
        train_loop,
        train_loop_config=config.model_dump(mode="json"),
        scaling_config=ray.train.ScalingConfig(num_workers=WORKERS),
        run_config=ray.train.RunConfig(
            name=name, storage_path=str(storage), failure_config=ray.train.FailureConfig(max_failures=3)
        ),
    )
    return trainer.fit()


if __name__ == "__main__":
    print(fit(Path(sys.argv[1]).resolve(), steps=int(sys.argv[2]) if len(sys.argv) > 2 else 50))
