"""What a model must offer to be trained here: named parameters with their cut, an embedding, a list of blocks, a head.

    ids -> embedding -> block 0 -> block 1 -> ... -> head -> hidden -> loss_sum       (hidden -> logits, for sampling)
           first stage  `------- any stage -------'  last stage

The built-in decoder offers just this, and so does a user's own model: `model.custom: module:function` names a function
that takes the `Config` and returns an `Architecture`. A weight is taken with `ground.flat.weight(name)`; where the
pieces of this room do not add to its accumulated gradient themselves, autograd does, so plain torch code works.
Between the parts, activations are [B, T, D], or [B, T/tp, D] under sequence parallelism.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.layout.param_spec import ParamSpec
from raymega.model.flat_params import FlatParams
from raymega.model.pass_context import PassContext
from raymega.model.tp_team import Team


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the parts of a stage are built from: this shard's weights, its team, the seed of dropout."""

    flat: FlatParams
    team: Team
    seed: int
    device: torch.device


Part = Callable[[Tensor, PassContext], Tensor]
"""The embedding ([B, T] int64 -> activations) or a block (activations -> activations)."""


class Head(Protocol):
    """What the last stage does after its blocks."""

    def __call__(self, x: Tensor, ctx: PassContext) -> Tensor:
        """Activations -> hidden states ready for the loss."""

    def loss_sum(self, hidden: Tensor, *, targets: Tensor, mask: Tensor | None) -> Tensor:
        """Sum of the token losses where `mask` is True, an fp32 scalar, equal on all shards. Never divide here."""

    def logits(self, hidden: Tensor) -> Tensor:
        """[B, T, V] on every shard, without a gradient."""


PARTS = ("param_specs", "embedding", "block", "head")
FACTORY = f"Name a function that takes one Config and returns a model with {', '.join(PARTS)}."


class Architecture(Protocol):
    """A model, before it is cut."""

    def param_specs(self) -> tuple[ParamSpec, ...]:
        """All parameters, by global name. Blocks own theirs by index; what one product uses stands together."""

    def embedding(self, ground: Ground) -> Part:
        """Build the first stage's part."""

    def block(self, ground: Ground, *, layer: int) -> Part:
        """Build block `layer`, an index over the whole model."""

    def head(self, ground: Ground) -> Head:
        """Build the last stage's part."""


def load_custom(config: Config) -> Architecture:
    """Call the function that `model.custom` names.

    Raises: ConfigError if it is no `module:function`, cannot be imported, or takes or returns something else.
    """
    where = config.model.custom
    assert where is not None, "a custom model is named"
    module_name, _, function_name = where.partition(":")
    if not module_name.strip() or module_name.startswith(".") or not function_name.isidentifier():
        raise ConfigError(f"model.custom is {where!r}. It names a function as `module:function`, e.g. my_model:build.")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"model.custom is {where!r}, which cannot be imported: {error}. Put the module's folder on PYTHONPATH."
        ) from error
    if not callable(function):
        raise ConfigError(f"model.custom is {where!r}, which is no function. Name one that returns a model.")
    try:
        architecture: Architecture = function(config)
    except TypeError as error:
        if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
            raise  # from inside of it, where its author will look
        raise ConfigError(
            f"model.custom is {where!r}, which cannot be called with a config: {error}. {FACTORY}"
        ) from error
    lacking = [name for name in PARTS if not callable(getattr(architecture, name, None))]
    if lacking:
        raise ConfigError(
            f"model.custom is {where!r}, which returned a {type(architecture).__name__} without "
            f"{', '.join(lacking)}. {FACTORY}"
        )
    return architecture
