"""What is to be computed, and by what kind of software, before anything is laid over devices.

job       model, sequence length, batch, optimizer, number format
software  how a trainer computes it: raymega's own way, or another's, so that published figures can be compared
"""

from dataclasses import dataclass, field
from typing import Literal

from raymega.config.dims import Dims, dims_of
from raymega.config.schema import Config, ModelConfig
from raymega.plan.hardware import Precision

Optimizer = Literal["sgd", "adamw"]
ELEMENT_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """How a trainer computes, as far as it shows in seconds and bytes.

    Args:
        attention: fused keeps no scores; plain writes them to memory (and, with dropout, their mask).
        keeps_masks: dropout's masks are kept for the backward, where there is dropout; otherwise they are drawn again.
        overlaps_collectives: a team's collectives of the backward run beside the weights' gradients.
        overlaps_messages: messages between stages run beside passes.
        sends_early: a gradient leaves for the stage before ahead of the products for weights, where that costs nothing.
        scatters_messages: each shard sends its part of a message, and the receiving team gathers it.
        reduces_out_of_place: the sum of gradients has a buffer of its own, so that its inputs survive a failure.
        gathers_under_forward: weights of which each replica updates a part travel under the forward that follows.
        logs_boundaries: what was sent to another stage is kept until the step is committed.
        gradient_bytes: of one accumulated gradient.
    """

    attention: Literal["fused", "plain"] = "fused"
    keeps_masks: bool = True
    overlaps_collectives: bool = True
    overlaps_messages: bool = True
    sends_early: bool = True
    scatters_messages: bool = False
    reduces_out_of_place: bool = True
    gathers_under_forward: bool = True
    logs_boundaries: bool = True
    gradient_bytes: int = 4


RAYMEGA = Software()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a step computes. `model.vocab_size` is set.

    Args:
        outlives: nodes whose loss at once copies of the state in their peers' memory outlive; None: no copies are kept.
        copies_on_device: that memory is the devices' own, as on CPUs; else it is their hosts'.
        logs_on_device: what was sent is kept there until the commit; else in their hosts' memory, or not at all.
        dims: of the model; follows from it.
    """

    model: ModelConfig
    seq_len: int
    batch_size: int
    optimizer: Optimizer = "adamw"
    precision: Precision = "fp32"
    grad_compression: Literal["none", "bf16", "fp16", "int8"] = "none"
    software: Software = RAYMEGA
    outlives: int | None = None
    copies_on_device: bool = False
    logs_on_device: bool = True
    dims: Dims = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """They are asked for in every part of every layout."""
        object.__setattr__(self, "dims", dims_of(self.model))

    @property
    def element_bytes(self) -> int:
        """Of a weight and of an activation."""
        return ELEMENT_BYTES[self.precision]

    @property
    def keeps_masks(self) -> bool:
        """Whether there are masks of dropout to keep."""
        return self.software.keeps_masks and self.model.dropout > 0

    @property
    def tokens_per_step(self) -> int:
        return self.batch_size * self.seq_len


def job_of(config: Config, *, precision: Precision | None = None) -> Job:
    """What `config` asks to compute.

    Args:
        precision: instead of the config's.
    """
    on_cpu = config.run.device == "cpu"  # where a device's memory is its host's
    return Job(
        model=config.model,
        seq_len=config.data.seq_len,
        batch_size=config.training.batch_size,
        optimizer=config.training.optimizer,
        precision=precision or config.training.precision,
        grad_compression=config.parallelism.grad_compression,
        outlives=config.elastic.tolerate_nodes if config.elastic.copies_every else None,
        copies_on_device=on_cpu,
        logs_on_device=config.elastic.boundary_log in (("device", "host") if on_cpu else ("device",)),
    )
