"""What a run may set: one closed section each, a line of text under each field.

The faces read the file and call `config.load`; rules that relate the sections stand in `config.rules`.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, create_model

Auto = Literal["auto"]
LONGEST_ROW = 2**31 - 1  # positions are 32-bit numbers
Count = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NonNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A frozen, closed section. The line under a field is its description in the JSON schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=(), use_attribute_docstrings=True)


class RunConfig(Section):
    """What a run is called, where it lies, and on what it runs."""

    name: str | None = None
    """Names the run, its directory and its controller; drawn when absent."""
    dir: str = "runs"
    """Where run directories are made."""
    seed: int | None = None
    """Seeds first values, data order and dropout; drawn once, and logged, when absent."""
    devices: Count | None = None
    """Devices to use; default: as many as the mesh needs."""
    cpus_per_worker: Count = 1
    """On CPU, a device is one worker of so many cores (and torch threads)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: cuda where every node has it, else cpu."""
    init_from: str | None = None
    """A run, or a checkpoint of one, whose parameters start this run; optimizer and position start fresh."""


class InitConfig(Section):
    """First values of the parameters."""

    scheme: Literal["scaled_normal", "t5"] = "scaled_normal"
    """scaled_normal: N(0, std), residual outputs N(0, std / sqrt(2 num_layers)) as in Megatron; t5: by fan-in."""
    std: Positive = 0.02
    """Standard deviation of scaled_normal's matrices."""


class ModelConfig(Section):
    """The decoder."""

    kind: Literal["llama", "gpt2"] = "llama"
    """llama: RMSNorm, rotary, SwiGLU; gpt2: LayerNorm, learned positions, GELU, biases."""
    hidden_size: Count = 256
    """Width of the residual stream."""
    num_layers: Count = 4
    """Blocks, over all stages."""
    num_attention_heads: Count = 4
    """Query heads; a multiple of tp."""
    num_key_value_heads: Count | None = None
    """Heads of keys and values; default num_attention_heads (1: multi-query)."""
    head_size: Count | None = None
    """Default hidden_size / num_attention_heads."""
    ffn_size: Count | None = None
    """Default 4 hidden_size (gpt2), or 8/3 hidden_size rounded up to a multiple of 16 (llama)."""
    vocab_size: Count | None = None
    """Default: the tokenizer's."""
    tie_embeddings: bool = False
    """One matrix for input and output embedding."""
    qk_norm: bool = False
    """RMSNorm on each head's queries and keys (llama)."""
    dropout: Fraction = 0.0
    """After attention and mlp, on the residual branch, and on the embedding."""
    norm_eps: Positive = 1e-5
    """Added to the variance (mean square) in norms."""
    rope_theta: Positive = 10000.0
    """Base of the rotary frequencies (llama)."""
    init: InitConfig = InitConfig()
    custom: str | None = None
    """`module:function` that returns a user's own model (see model/protocol.py)."""


class Blend(Section):
    """One part of a blend of corpora."""

    path: str
    """A directory made by `raymega data prepare`, or the name of a built-in corpus."""
    weight: Positive
    """Share of the samples, relative to the other weights."""


class DataConfig(Section):
    """What is trained on."""

    train: str | tuple[Blend, ...] = "shakespeare"
    """A directory made by `raymega data prepare`, the name of a built-in corpus, or a blend."""
    valid: str | None = None
    """Default: the validation split of `train`, where it has one."""
    tokenizer: str = "shakespeare-2k"
    """byte, a built-in name, a tokenizer.json, or a directory that `raymega data prepare` has made."""
    seq_len: Annotated[int, Field(ge=1, le=LONGEST_ROW)] = 256
    """Trained positions of a row; a row holds seq_len + 1 ids."""
    shuffle: bool = True
    """Seeded shuffle, anew for each epoch; false: the order of the files."""


class ParallelismConfig(Section):
    """The mesh and the schedule on it; `auto` leaves an axis to the planner."""

    data_parallel_size: Count | Auto = 1
    """Replicas (dp)."""
    tensor_model_parallel_size: Count | Auto = 1
    """Shards of each layer (tp)."""
    pipeline_model_parallel_size: Count | Auto = 1
    """Stages (pp)."""
    layers_per_stage: tuple[Count, ...] | None = None
    """Blocks of each stage (chunk by chunk); default: balanced, uneven where layers do not divide."""
    schedule: Literal["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"] | str = "1f1b"
    """1f1b: least memory; interleaved, zb-v: several chunks a stage; zb: backwards in two parts; or FILE.csv."""
    chunks: Count | None = None
    """Virtual stages on a stage; default: 2 where the schedule runs several, else 1."""
    schedule_table: tuple[str, ...] | None = None
    """Rows of actions, one a stage; read from FILE.csv as the run begins."""
    sequence_parallel: bool = False
    """Cut activations between tensor-parallel regions along the sequence; needs seq_len divisible by tp."""

    recompute: Literal["none", "selective", "full"] | tuple[Annotated[int, Field(ge=0)], ...] = "none"
    """Computed again in the backward, to keep less: nothing, attention between its products, blocks; or [layers]."""
    grad_compression: Literal["none", "bf16", "fp16", "int8"] = "none"
    """Format in which replicas send each other gradients; what rounding leaves is sent later (error feedback)."""
    grad_compression_between: Literal["replicas", "nodes"] = "replicas"
    """replicas: wherever they lie; nodes: only where the replicas of a stage lie on several nodes."""
    shard_optimizer: Literal["none", "zero1", "mirrored"] = "none"
    """Masters, moments; zero1: cut over replicas, a loss goes back to a copy or a checkpoint; mirrored: each on two."""


class TrainingConfig(Section):
    """Steps, batch, optimizer."""

    steps: Count = 100
    """Optimizer updates in all, counted from the run's beginning, not from a resume."""
    batch_size: Count = 16
    """Samples of a step, over all replicas (global batch)."""
    micro_batch_size: Count = 4
    """Samples that flow through the stages together; larger is faster and takes more memory."""
    optimizer: Literal["sgd", "adamw"] = "adamw"
    """adamw with decoupled decay, or plain sgd."""
    lr: NonNegative = 1e-3
    """Learning rate after warm-up."""
    betas: tuple[Fraction, Fraction] = (0.9, 0.95)
    """adamw: decay of the first and of the second moment."""
    eps: Positive = 1e-8
    """adamw: added to the root of the second moment."""
    weight_decay: NonNegative = 0.1
    """Decoupled decay of matrices; biases, norms and other vectors have none."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """How lr goes on after warm-up."""
    min_lr: NonNegative = 0.0
    """Where linear and cosine end."""
    warmup_samples: Annotated[int, Field(ge=0)] = 0
    """Linear warm-up, in samples, so that a changed batch does not move the schedule."""
    decay_samples: Count | None = None
    """Samples at which the schedule ends; default steps * batch_size."""
    clip_grad: NonNegative = 1.0
    """Largest global gradient norm; 0: no clipping."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of products, activations and messages; parameters, gradients and moments are fp32 in all."""
    loss_scale: Literal["dynamic"] | Positive = "dynamic"
    """fp16: what the loss is multiplied with before the backward; dynamic: found, and followed, while training."""
    initial_loss_scale: Positive = 65536.0
    """Where a dynamic loss scale begins."""
    min_loss_scale: Positive = 1.0
    """Where it ends: an overflow at this scale ends the run."""
    loss_scale_window: Count = 1000
    """Steps without an overflow after which it doubles."""
    hysteresis: Count = 2
    """Overflows after a doubling until one halves it."""
    eval_every: Annotated[int, Field(ge=0)] = 0
    """Steps between validation losses; 0: only none."""
    eval_samples: Count | None = None
    """Validation samples each time; default: the whole split."""
    max_nonfinite_steps: Annotated[int, Field(ge=0)] = 10
    """Skipped steps in a row before the run ends with exit code 6."""


class CheckpointConfig(Section):
    """When and where state is kept."""

    every_steps: Annotated[int, Field(ge=0)] = 0
    """Steps between checkpoints; 0: only at the end."""
    keep: Count = 2
    """Complete checkpoints kept; older ones are removed once a newer is published."""
    path: str | None = None
    """Where; default RUNDIR/checkpoints; `s3://bucket/prefix` and the like go through pyarrow.fs."""
    timeout_s: Positive = 600.0
    """A save that takes longer is given up, named, and the previous one stays newest."""


class LogConfig(Section):
    """What is written down."""

    every_steps: Count = 1
    """Steps between lines on the console; metrics.jsonl has every step."""
    tensorboard: bool = True
    """Write TensorBoard files to RUNDIR/tensorboard."""
    trackers: tuple[Literal["wandb", "mlflow"], ...] = ()
    """Services that get the metrics as well; each needs its own package."""
    trace_steps: tuple[Count, ...] = ()
    """Steps of which a Chrome trace is written to RUNDIR/traces."""
    torch_profiler: bool = False
    """Add torch.profiler's events to those traces."""


_ENTRY: dict[str, Any] = {  # Any: as pydantic wants it; a class of Python's cannot have a field called `from`
    "from": (str, Field(description="Time of day as 08:00, on the clocks of elastic.timezone.")),
    "devices": (Count, Field(description="Devices at most, until the next entry.")),
}
CalendarEntry = create_model(
    "CalendarEntry",
    __base__=Section,
    __doc__="A time of day, and how many devices the run may have from then on.",
    **_ENTRY,
)


class ElasticConfig(Section):
    """What happens when workers go silent or die."""

    min_devices: Count = 1
    """Fewer than this ends the run, resumable."""
    lease_s: Positive = 2.0
    """A worker silent for so long is lost."""
    orphan_lease_s: Positive = 15.0
    """A worker that has not heard from its controller for so long ends itself; another one is there after 2 to 4 s."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """Recoveries without a newly committed step before the run gives up; nodes that go are none if the step goes on."""
    standbys: Annotated[int, Field(ge=0)] = 0
    """Warm workers beside the mesh, on free devices; one takes a lost worker's place at the next boundary."""
    steady_s: NonNegative = 10.0
    """A node that came while the run trains is used once it has been there so long; longer if it went before."""
    copies_every: Annotated[int, Field(ge=0, le=512)] = 0
    """Steps between copies of state into the memory of other nodes; 0: none."""
    check_replicas_every: Annotated[int, Field(ge=0)] = 0
    """Steps between comparisons of what replicas hold, bit for bit; what differs ends the run. 0: none."""
    tolerate_nodes: Annotated[int, Field(ge=0)] = 1
    """Nodes whose loss at once the copies outlive."""
    group_timeout_s: Positive = 300.0
    """Backstop of every collective; death is noticed long before by broken connections and leases."""
    boundary_log: Literal["device", "host", "off"] = "device"
    """Where workers keep what they send to other stages until the step commits; `off`: a broken step is lost."""
    calendar: tuple[CalendarEntry, ...] = ()
    """Devices at most by time of day, every day: `[{from: "08:00", devices: 12}, {from: "22:00", devices: 4}]`."""
    timezone: str = "UTC"
    """Whose clocks the calendar goes by, as Europe/Berlin; summer time is followed."""
    priority: int = 0
    """Among the runs of one cluster: those with less give devices to those with more, down to their min_devices."""
    notices: Literal["auto", "off", "aws", "gcp", "azure"] = "auto"
    """Whose word counts that a node is to go; auto: on nodes marked as spot, that of the cloud that they belong to."""
    chaos: tuple[str, ...] = ()
    """What goes wrong on purpose, as in `kill stage=1 replica=0 step=40 action=B3`; each once in a run."""


class Config(Section):
    """One run."""

    run: RunConfig = RunConfig()
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    parallelism: ParallelismConfig = ParallelismConfig()
    training: TrainingConfig = TrainingConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    elastic: ElasticConfig = ElasticConfig()
