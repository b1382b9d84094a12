"""One virtual stage of the pipeline, as one shard of its team holds it: its blocks, under their global names.

    first stage:   ids [B, T]      -> embedding -> blocks -> y [B, T, D]
    others:        x [B, T, D]     -> blocks -> y [B, T, D]
    last stage:                       blocks -> head -> hidden [B, T, D] -> loss_sum        ([B, T/tp, D] with
                                                                                             sequence parallelism)
A backward adds to the accumulated gradients of `flat`; nothing here divides, clears or reduces them, except that
`sum_partial_grads` adds up what the shards of a team hold in parts.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from raymega.comm.group import Group
from raymega.config.schema import Config
from raymega.layout.param_layout import specs_of_stage
from raymega.layout.param_spec import ParamSpec
from raymega.model.backward import Later
from raymega.model.decoder import Decoder
from raymega.model.flat_params import FlatParams, LocalParam
from raymega.model.partial_grads import sum_partial_grads
from raymega.model.pass_context import PassContext
from raymega.model.protocol import Architecture, Ground, Head, Part, load_custom
from raymega.model.recompute import recomputed
from raymega.model.seeding import fill_first_values
from raymega.model.tp_team import Team
from raymega.plan.parallel_layout import parts_cost_nothing, recompute_of

__all__ = [
    "FlatParams",
    "LocalParam",
    "PassContext",
    "StageModel",
    "architecture_of",
    "blank_stage",
    "build_stage",
    "specs_of",
]


DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
"""Of weights and activations, by `training.precision`."""

Passed = Callable[[int], None]
Needed = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageModel:
    """See above.

    Args:
        parts: the embedding, where it is the first, and the blocks; `head` stands on the last.
        first_use: of each weight, the number of the first part that has taken it; the head comes after all parts.
        parts_cost_nothing: as of a layout: its backwards may be in two parts wherever someone waits for the first.
    """

    flat: FlatParams
    team: Team
    parts: tuple[Part, ...]
    head: Head | None
    is_first: bool
    hidden_size: int
    first_use: Mapping[str, int]
    parts_cost_nothing: bool

    @property
    def params(self) -> tuple[LocalParam, ...]:
        return self.flat.params

    @property
    def tied(self) -> LocalParam | None:
        """The parameter that the other end of the pipeline holds too, where this stage is one of two ends."""
        if self.is_first and self.head is not None:
            return None
        return next((param for param in self.params if param.spec.owner == "both"), None)

    @property
    def has_partial_grads(self) -> bool:
        """Whether `sum_partial_grads` has anything to do."""
        return any(param.partial for param in self.params)

    def forward(
        self, x: Tensor, ctx: PassContext, *, passed: Passed | None = None, needed: Needed | None = None
    ) -> Tensor:
        """ids [B, T] int64 on the first stage, else activations -> activations, on the last ready for the loss.

        Args:
            passed: told n, while the backward of this pass runs, or its weights' part: all is added that it has for
                `parts[n:]` and the head. Not told of what has no part before it.
            needed: told n before `parts[n]` reads its weights, and the number of parts before the head does.
        """
        for number, part in enumerate(self.parts):
            _tell(needed, number)
            x = part(self._watched(x, number, passed), ctx)
        if self.head is None:
            return x
        _tell(needed, len(self.parts))
        return self.head(self._watched(x, len(self.parts), passed), ctx)

    def _watched(self, x: Tensor, number: int, passed: Passed | None) -> Tensor:
        """`x`; once a backward goes on to what made it, all made since is done: autograd takes the newest first."""
        if passed is not None and x.grad_fn is not None:
            x.register_hook(lambda _: self.flat.grads.when_added(lambda: passed(number)))
        return x

    def backward_to_input(self, y: Tensor, *, x: Tensor, grad: Tensor) -> tuple[Tensor | None, Later]:
        """The gradient of `x`, if it has one, and what is left to be added to the accumulators, by `Later.run`."""
        return self.flat.grads.run_input_part(y, x=x, grad=grad)

    def loss_sum(self, y: Tensor, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Sum of the token losses of `y` where `mask` is True, an fp32 scalar, the same on all shards."""
        assert self.head is not None, "only the last stage has a loss"
        return self.head.loss_sum(y, targets=targets, mask=mask)

    def logits(self, y: Tensor) -> Tensor:
        """[B, T, V] on every shard, without a gradient."""
        assert self.head is not None, "only the last stage has logits"
        return self.head.logits(y)

    @property
    def dtype(self) -> torch.dtype:
        """Of activations and their gradients, between stages too."""
        return self.flat.weights.dtype

    def boundary_shape(self, batch: int, seq: int) -> tuple[int, ...]:
        """Shape of what crosses to the next stage, and of its gradient."""
        return (batch, seq // self.team.size if self.team.cuts_sequence else seq, self.hidden_size)

    def sum_partial_grads(self, *, out: Tensor) -> None:
        """Write the team's sums of partial gradients to `out`, which holds a copy of `flat.grad`; a collective."""
        sum_partial_grads(self.params, out=out, team=self.team)


def _tell(needed: Needed | None, number: int) -> None:
    if needed is not None:
        needed(number)


def build_stage(
    config: Config,
    *,
    layers: tuple[int, int],
    first: bool,
    last: bool,
    team: Group | None,
    seed: int,
    device: torch.device | str = "cpu",
    masters: bool = True,
) -> StageModel:
    """Build the stage with the blocks `layers` (half-open) and its first values.

    Args:
        team: the group of its tp shards; None: this shard is the whole team.
        seed: of first values and dropout.
        masters: keep matrices in fp32 too, whatever the precision.
    """
    model = blank_stage(
        config, layers=layers, first=first, last=last, team=team, seed=seed, device=device, masters=masters
    )
    for param in model.params:
        fill_first_values(param.data, spec=param.spec, box=param.box, seed=seed, model=config.model)
    model.flat.cast()
    return model


def blank_stage(
    config: Config,
    *,
    layers: tuple[int, int],
    first: bool,
    last: bool,
    team: Group | None,
    seed: int,
    device: torch.device | str = "cpu",
    masters: bool = True,
) -> StageModel:
    """As `build_stage`, with zeros for values, which are to come from elsewhere."""
    architecture = architecture_of(config)
    crew = Team(group=team, sequence_parallel=config.parallelism.sequence_parallel)
    specs = specs_of_stage(architecture.param_specs(), layers=layers, first=first, last=last)
    copies = frozenset(spec.name for spec in specs if spec.owner == "both" and not first)
    flat = FlatParams.build(
        specs, team=crew, copies=copies, device=torch.device(device), dtype=DTYPES[config.training.precision],
        masters=masters,
    )  # fmt: skip
    ground = Ground(flat=flat, team=crew, seed=seed, device=torch.device(device))
    builds: list[Callable[[], Part]] = [partial(architecture.embedding, ground)] if first else []
    builds += [partial(_block, architecture, config, ground=ground, layer=layer) for layer in range(*layers)]
    parts: list[Part] = []
    first_use: dict[str, int] = {}
    for number, build in enumerate(builds):
        parts.append(build())
        first_use = dict.fromkeys(flat.taken, number) | first_use
    head = architecture.head(ground) if last else None
    return StageModel(
        flat=flat,
        team=crew,
        parts=tuple(parts),
        head=head,
        is_first=first,
        hidden_size=config.model.hidden_size,
        first_use=dict.fromkeys(flat.taken, len(parts)) | first_use,
        parts_cost_nothing=parts_cost_nothing(config.model, tp=crew.size, recompute=recompute_of(config)),
    )


def _block(architecture: Architecture, config: Config, *, ground: Ground, layer: int) -> Part:
    """The block, computed again in the backward where the config says so."""
    block, again = architecture.block(ground, layer=layer), config.parallelism.recompute
    if again != "full" and (isinstance(again, str) or layer not in again):
        return block
    return lambda x, ctx: recomputed(x, lambda x: block(x, ctx), grads=ground.flat.grads)


def architecture_of(config: Config) -> Architecture:
    """The model that `config` names: the built-in decoder, or the user's own."""
    return Decoder(config=config) if config.model.custom is None else load_custom(config)


def specs_of(config: Config) -> tuple[ParamSpec, ...]:
    """All parameters of the model that `config` names, in the order of the forward pass."""
    return architecture_of(config).param_specs()
