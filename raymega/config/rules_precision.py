"""Rules about number formats and memory: a loss scale is fp16's, and what is computed again is there to be."""

from raymega.config.fault import Fault
from raymega.config.schema import Config

RECOMPUTE = "parallelism.recompute"


def a_loss_scale_is_that_of_fp16(config: Config) -> Fault | None:
    """bf16 has the range of fp32, so that nothing has to be scaled."""
    training = config.training
    if training.loss_scale == "dynamic" or training.precision == "fp16":
        return None
    problem = f"{training.loss_scale:g} given, but precision {training.precision} has the range of fp32 and needs none"
    return Fault(key="training.loss_scale", problem=problem, way_out="Leave it out, or set training.precision to fp16")


def the_scale_begins_above_its_floor(config: Config) -> Fault | None:
    """A dynamic scale has somewhere to fall to."""
    first, floor = config.training.initial_loss_scale, config.training.min_loss_scale
    if floor <= first:
        return None
    problem = f"{floor:g} is above initial_loss_scale {first:g}, from which the scale falls"
    return Fault(key="training.min_loss_scale", problem=problem, way_out=f"Use {first:g} or less")


def recomputed_layers_are_there(config: Config) -> Fault | None:
    """Layers that are named exist."""
    asked, layers = config.parallelism.recompute, config.model.num_layers
    beyond = [layer for layer in asked if layer >= layers] if not isinstance(asked, str) else []
    if not beyond:
        return None
    problem = f"{beyond} of the layers named are not there; the model has 0 to {layers - 1}"
    return Fault(key=RECOMPUTE, problem=problem, way_out="Name those of the model, or use full")


def selective_knows_the_attention(config: Config) -> Fault | None:
    """Attention is found in the built-in models only."""
    if config.parallelism.recompute != "selective" or config.model.custom is None:
        return None
    problem = "selective computes attention again, which a model of one's own keeps to itself"
    return Fault(key=RECOMPUTE, problem=problem, way_out="Use full, or a list of layers")
