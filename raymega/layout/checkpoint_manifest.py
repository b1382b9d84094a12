"""The manifest of a checkpoint: what it is, every tensor of the state, every file with its checksum.

    {"format": 1, "run_id": "nano-3f", "step": 40, "generation": 1000001, "samples": 640, "seed": 7,
     "config_digest": "...", "tokenizer": "...", "scalars": {}, "kept": {"model.rope_theta": 10000.0, ...},
     "tensors": [{"name": "layers.7.attn.wq", "kind": "param", "shape": [96, 96], "dtype": "F32"}, ...],
     "shards":  [{"file": "g1000001-w0-0-5f1c93aa.safetensors", "bytes": 73912, "xxh3_128": "...",
                  "pieces": {"layers.7.attn.wq|param|0:96,0:48": "<xxh3_128>", ...}}, ...],
     "checksum": "<xxh3_128 of all the rest>"}

`checksum` names this state and no other: workers that loaded the same one hold the same bits. A version of the state
is a commit, (step, generation that decided it); the file of every shard carries it too.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import combinations
from math import prod
from typing import Any

import xxhash

from raymega.errors import StateError
from raymega.layout.checkpoint_layout import key_of, parse_key
from raymega.layout.param_spec import ParamSpec
from raymega.layout.shard_box import Box, uncovered

FORMAT = 1
DTYPE_BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}
"""Bytes of an element, by safetensors' name of its type."""


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class TensorInfo:
    """One whole tensor of the state; `kind` is param, exp_avg, exp_avg_sq and the like."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str = "F32"

    @property
    def size_bytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A part of a tensor as it lies in a file."""

    name: str
    kind: str
    box: Box
    checksum: str

    @property
    def key(self) -> str:
        return key_of(self.name, self.kind, self.box)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardFile:
    """One file, as its writer reports it and the manifest keeps it."""

    file: str
    size_bytes: int
    checksum: str
    pieces: tuple[Piece, ...]

    def to_json(self) -> dict[str, Any]:
        pieces = {piece.key: piece.checksum for piece in self.pieces}
        return {"file": self.file, "bytes": self.size_bytes, "xxh3_128": self.checksum, "pieces": pieces}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "ShardFile":
        found = []
        for key, checksum in data["pieces"].items():
            name, kind, box = parse_key(key)
            found.append(Piece(name=name, kind=kind, box=box, checksum=checksum))
        return cls(file=data["file"], size_bytes=data["bytes"], checksum=data["xxh3_128"], pieces=tuple(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a checkpoint is.

    Args:
        run_id: the run that wrote it.
        step: committed steps.
        generation: the one that decided the last of them.
        samples: position in the run's endless order of samples; where the data goes on.
        seed: of first values, data order and dropout.
        config_digest: of the config that was trained.
        tokenizer: fingerprint of the tokenizer.
        scalars: counters that are state, by name (loss scale and the like).
        kept: key of the config -> value that a run keeps for as long as it lasts; empty where it was not written down.
        tensors: every whole tensor of the state.
        shards: every file.
    """

    run_id: str
    step: int
    generation: int
    samples: int
    seed: int
    config_digest: str
    tokenizer: str
    scalars: dict[str, float] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)  # Any: JSON
    tensors: tuple[TensorInfo, ...]
    shards: tuple[ShardFile, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(shard.size_bytes for shard in self.shards)

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset(tensor.kind for tensor in self.tensors)

    @property
    def checksum(self) -> str:
        """Names this state: equal for equal manifests only."""
        return _checksum(self._body())

    def to_text(self) -> str:
        """The text of `manifest.json`; `parse` gives an equal manifest."""
        body = self._body()
        return json.dumps({**body, "checksum": _checksum(body)}, indent=1) + "\n"

    def _body(self) -> dict[str, Any]:
        facts = {name: getattr(self, name) for name in _FACTS} | ({"kept": self.kept} if self.kept else {})
        tensors = [{**asdict(tensor), "shape": list(tensor.shape)} for tensor in self.tensors]
        return {"format": FORMAT, **facts, "tensors": tensors, "shards": [shard.to_json() for shard in self.shards]}


_FACTS = ("run_id", "step", "generation", "samples", "seed", "config_digest", "tokenizer", "scalars")


def parse(text: str) -> Manifest:
    """Read the text of a `manifest.json`. Raises: StateError saying what is wrong with it."""
    try:
        data = json.loads(text)
        found = data["format"]
        if found > FORMAT:
            raise StateError(
                f"the manifest has format {found}; this raymega reads up to {FORMAT}. Install a newer one."
            )
        missing = [name for name in (*_FACTS, "tensors", "shards", "checksum") if name not in data]
        if missing:
            raise StateError(f"the manifest lacks {', '.join(missing)}", missing=tuple(missing))
        if data.pop("checksum") != _checksum(data):
            raise StateError("the manifest is corrupt: its text does not have the checksum that it names")
        tensors = tuple(TensorInfo(**{**entry, "shape": tuple(entry["shape"])}) for entry in data["tensors"])
        shards = tuple(ShardFile.from_json(entry) for entry in data["shards"])
        facts = {name: data[name] for name in _FACTS}
        return Manifest(**facts, kept=data.get("kept", {}), tensors=tensors, shards=shards)
    except KeyError as error:
        raise StateError(f"the manifest is corrupt: an entry lacks {error.args[0]!r}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"the manifest is corrupt: {error}") from error


def tensors_of(specs: Iterable[ParamSpec], *, kinds: Sequence[str]) -> tuple[TensorInfo, ...]:
    """Every tensor of the state of a model: each parameter in each kind, fp32."""
    return tuple(TensorInfo(name=spec.name, kind=kind, shape=spec.shape) for spec in specs for kind in kinds)


def estimate_bytes(specs: Iterable[ParamSpec], *, kinds: Sequence[str]) -> int:
    """Bytes of one checkpoint; keys and headers, under a thousandth of a real model's, are left out."""
    return sum(tensor.size_bytes for tensor in tensors_of(specs, kinds=kinds))


def gaps(manifest: Manifest) -> tuple[str, ...]:
    """What the files do not hold exactly once, one sentence each; empty if the checkpoint is whole."""
    boxes: dict[tuple[str, str], list[Box]] = defaultdict(list)
    for shard in manifest.shards:
        for piece in shard.pieces:
            boxes[piece.name, piece.kind].append(piece.box)
    found = []
    for tensor in manifest.tensors:
        held = boxes.pop((tensor.name, tensor.kind), [])
        rest = uncovered(Box.whole(tensor.shape), by=held)
        found += [f"no shard holds {tensor.name} ({tensor.kind}) {box}" for box in rest[:1]]
        twice = next((one for one, other in combinations(held, 2) if one.overlap(other)), None)
        found += [f"{tensor.name} ({tensor.kind}) {twice} is held twice"] if twice is not None else []
    found += [f"{name} ({kind}) is in a shard but not in the list of tensors" for name, kind in boxes]
    return tuple(found)


def misfits(manifest: Manifest, expected: Iterable[TensorInfo]) -> tuple[str, ...]:
    """Where a checkpoint and a state differ, one sentence each: unfilled, left over, another shape or type."""
    there = {(tensor.name, tensor.kind): tensor for tensor in manifest.tensors}
    found = []
    for want in expected:
        tensor = there.pop((want.name, want.kind), None)
        if tensor is None:
            found.append(f"{want.name} ({want.kind}) is not in the checkpoint")
        elif tensor != want:
            has = f"{tensor.dtype} {list(tensor.shape)}"
            found.append(f"{want.name} ({want.kind}) is {has} in the checkpoint, {want.dtype} {list(want.shape)} here")
    found += [f"{name} ({kind}) is in the checkpoint, but not in this model's state" for name, kind in there]
    return tuple(found)


def _checksum(body: dict[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return str(xxhash.xxh3_128(text.encode()).hexdigest())
