"""Rules about faults on purpose: every order can be read, and names a place and a moment that the run has."""

from collections.abc import Iterator

from raymega.config.chaos import ChaosOrder, read
from raymega.config.choices import number
from raymega.config.fault import Fault
from raymega.config.rules_mesh import DP, PP, TP
from raymega.config.schema import Auto, Config

KEY = "elastic.chaos"
READS = (
    KEY, DP, TP, PP, "parallelism.shard_optimizer", "training.steps", "training.batch_size",
    "training.micro_batch_size",
)  # fmt: skip


def every_order_can_happen(config: Config) -> Fault | None:
    """All that is wrong with all orders, in one fault of their key."""
    wrong = [f'"{text}": {" ".join(said)}' for text in config.elastic.chaos if (said := _faults(text, config=config))]
    if not wrong:
        return None
    way_out = "Write VERB [node=N | stage=S replica=R [tp=T] | controller] step=K [action=F3 | phase=P | bucket=N]"
    return Fault(key=KEY, problem="; ".join(wrong).removesuffix("."), way_out=f"{way_out} [for=SECONDS]")


def that_can_happen(config: Config) -> tuple[str, ...]:
    """The orders that the run could carry out."""
    return tuple(text for text in config.elastic.chaos if not _faults(text, config=config))


def out_of_reach(order: ChaosOrder, *, config: Config) -> Iterator[str]:
    """What the order names and the run does not have."""
    axes, training = config.parallelism, config.training
    sizes: tuple[tuple[str, int | None, int | Auto], ...] = (
        ("replica", order.replica, axes.data_parallel_size),
        ("stage", order.stage, axes.pipeline_model_parallel_size),
        ("tp", order.tp, axes.tensor_model_parallel_size),
        ("action", order.microbatch, -(-training.batch_size // training.micro_batch_size)),
    )
    for key, value, size in sizes:
        if value is not None and size != "auto" and value >= number(size):
            what = f"micro-batch {value}" if key == "action" else f"{key}={value}"
            yield f"{what} is not there; the run has 0 to {number(size) - 1}."
    if order.phase == "gather" and axes.shard_optimizer == "none":
        yield "phase=gather is never reached; weights are gathered where parallelism.shard_optimizer cuts the state."
    if order.step > training.steps:
        yield f"step={order.step} is never done; the run ends after step {training.steps}."


def _faults(text: str, *, config: Config) -> tuple[str, ...]:
    found = read(text)
    return found.faults if found.order is None else tuple(out_of_reach(found.order, config=config))
