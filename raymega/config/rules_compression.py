"""Rules about gradients that are sent with fewer bits: it pays, and what is left of them is nowhere copied or saved."""

from raymega.config.choices import number
from raymega.config.fault import Fault, counted
from raymega.config.rules_mesh import DP
from raymega.config.schema import Config

KEY = "parallelism.grad_compression"
MOST_REPLICAS = {"bf16": 3, "fp16": 3, "int8": 7}
"""Everyone sends its code to everyone, n - 1 times; a plain sum sends 8 (n - 1) / n bytes an element."""


def it_sends_less(config: Config) -> Fault | None:
    """With many replicas the codes are more bytes than the sum is."""
    kind, dp = config.parallelism.grad_compression, number(config.parallelism.data_parallel_size)
    if kind == "none" or dp <= MOST_REPLICAS[kind]:
        return None
    problem = (
        f"{kind} between dp={counted(dp, noun='replica')} sends more than no compression; it pays up "
        f"to {MOST_REPLICAS[kind]}"
    )
    other = [name for name, most in MOST_REPLICAS.items() if dp <= most]
    return Fault(key=KEY, problem=problem, way_out=f"Use none{', or ' + other[0] if other else ''}, or a smaller {DP}")


def sums_are_whole(config: Config) -> Fault | None:
    """Pieces of the optimizer's state are summed by those who hold them, each alone."""
    if config.parallelism.grad_compression == "none" or config.parallelism.shard_optimizer == "none":
        return None
    problem = f"{config.parallelism.grad_compression} codes whole sums, and shard_optimizer cuts them into pieces"
    return Fault(key=KEY, problem=problem, way_out="Set one of the two to none")


def nothing_is_copied_of_it(config: Config) -> Fault | None:
    """Copies of state would need a full sum each time."""
    if config.parallelism.grad_compression == "none" or config.elastic.copies_every == 0:
        return None
    problem = "what compression has not sent yet is in no copy of state, so elastic.copies_every cannot go with it"
    return Fault(key=KEY, problem=problem, way_out="Set elastic.copies_every to 0, or this to none")
