"""A checkpoint's parameters as others read them: whole tensors under global names, in plain safetensors files.

    step-200/  pieces of boxes, as many workers wrote them    -->    PATH/model.safetensors
                                                                     layers.0.attn.wq  [512, 512]  ..
    larger than FILE_BYTES: model-00001-of-00003.safetensors ..  and model.safetensors.index.json, which names the file
    of each tensor, as Hugging Face's libraries look for it

One tensor is in memory at a time. A file appears whole under its name, and the index last.
Source: the format of safetensors and of its sharded index.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from raymega.checkpoint.faults import faults_by_size
from raymega.checkpoint.find import read_manifest, reading
from raymega.checkpoint.load import read_tensor
from raymega.checkpoint.safetensors_header import Entry, header_bytes
from raymega.checkpoint.store import Store, open_store, write_bytes
from raymega.config.fault import counted
from raymega.errors import ConfigError, StateError
from raymega.layout.checkpoint_manifest import Manifest, TensorInfo

FILE_BYTES = 4 * 2**30
INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written, and where."""

    place: str
    step: int
    files: tuple[str, ...]
    tensors: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"step {self.step}: {counted(self.tensors, noun='tensor')}, {self.size_bytes / 1e6:,.1f} MB -> "
            f"{self.place}: "
            f"{', '.join(self.files[:3])}{', ..' if len(self.files) > 3 else ''}"
        )


def export_params(uri: str, *, to: str, file_bytes: int = FILE_BYTES) -> Exported:
    """Write the parameters of the checkpoint at `uri` into the directory `to`, which holds no other export.

    Raises: ConfigError if there is something in it; StateError if the checkpoint is not whole, or cannot be read.
    """
    source, target = open_store(uri), open_store(to)
    manifest = read_manifest(source)
    with reading(source):
        faults = faults_by_size(manifest, source)
    if faults:
        raise StateError(f"{source.place} is not whole: {faults[0]}. Export another step.", faults=faults)
    if there := target.list():
        raise ConfigError(f"{target.place} holds {there[0].name}; an export has a directory of its own. Name another.")
    params = sorted(tensor for tensor in manifest.tensors if tensor.kind == "param")
    groups = _by_file(params, file_bytes=file_bytes)
    names = file_names(len(groups))
    for name, group in zip(names, groups, strict=True):
        _write_file(name, group, manifest=manifest, source=source, target=target)
    size_bytes = sum(tensor.size_bytes for tensor in params)
    if len(names) > 1:
        write_bytes(target, INDEX, _index(names, groups, size_bytes=size_bytes))
    return Exported(place=target.place, step=manifest.step, files=names, tensors=len(params), size_bytes=size_bytes)


def file_names(count: int) -> tuple[str, ...]:
    """Names of so many files.

    >>> file_names(1), file_names(2)[1]
    (('model.safetensors',), 'model-00002-of-00002.safetensors')
    """
    if count == 1:
        return ("model.safetensors",)
    return tuple(f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1))


def _by_file(tensors: Sequence[TensorInfo], *, file_bytes: int) -> list[list[TensorInfo]]:
    """Tensors in their order, each file at most `file_bytes` unless one tensor alone is larger."""
    groups: list[list[TensorInfo]] = [[]]
    size = 0
    for tensor in tensors:
        if groups[-1] and size + tensor.size_bytes > file_bytes:
            groups.append([])
            size = 0
        groups[-1].append(tensor)
        size += tensor.size_bytes
    return groups


def _write_file(name: str, tensors: Sequence[TensorInfo], *, manifest: Manifest, source: Store, target: Store) -> None:
    entries = [Entry(key=tensor.name, dtype=tensor.dtype, shape=tensor.shape) for tensor in tensors]
    metadata = {"format": "pt", "run_id": manifest.run_id, "step": str(manifest.step)}
    with target.create(name) as sink:
        sink.write(header_bytes(entries, metadata=metadata))
        for tensor in tensors:
            whole = read_tensor(tensor, manifest=manifest, store=source)
            sink.write(whole.reshape(-1).view(torch.uint8).numpy().data)


def _index(names: Sequence[str], groups: Sequence[Sequence[TensorInfo]], *, size_bytes: int) -> bytes:
    weight_map = {tensor.name: name for name, group in zip(names, groups, strict=True) for tensor in group}
    return (json.dumps({"metadata": {"total_size": size_bytes}, "weight_map": weight_map}, indent=2) + "\n").encode()
