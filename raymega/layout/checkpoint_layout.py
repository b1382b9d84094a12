"""How a checkpoint lies on disk, and who writes which part of it. The plan that wrote it does not occur in it.

    checkpoints/
      step-20/                                   one checkpoint; it exists once its manifest does
        manifest.json                            what it is, every tensor, every file with its checksum
        g1000001-w0-0-5f1c93aa.safetensors       generation, worker, part, and a token drawn for this attempt
        g1000001-w1-0-90b1e7d2.safetensors
      step-40/ ...

A file holds pieces of tensors under keys that say what they are, `layers.7.attn.wq|param|0:96,0:48`: global name,
kind, and the box in elements of the whole tensor. So any layout finds its boxes by overlap, and anyone who reads
safetensors can read them. Files of an attempt that broke off are never in the way: their token is another.

    boxes of two replicas, end to end   |  wq  |  wk  | wv |    w_up    |   w_down   | n |
    written by replica                  |----- 0 -----------------|----- 1 --------------|

Replicas hold the same boxes, so each writes one part of them, equal in bytes; only large boxes are cut for that.
Source of the manifest-last rule: the atomic commit of distributed checkpoints (Orbax, PyTorch DCP).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

from raymega.errors import RaymegaBug
from raymega.layout.param_layout import Holding
from raymega.layout.shard_box import Box, uncovered

MANIFEST = "manifest.json"
SET_ASIDE = "manifest.set-aside.json"
PIECE_BYTES = 32 * 2**20
"""Largest piece of a file: what a loader holds at a time, and what one checksum guards."""
FILE_BYTES = 4 * 2**30
"""A file is ended by the box that passes this."""
MIN_CUT_ELEMENTS = 65536
"""Smaller boxes are written whole (guess: below it, the cut costs more in keys than it evens out)."""

_STEP = re.compile(r"step-(0|[1-9][0-9]*)")
_SHARD = re.compile(r"g[0-9]+-[\w.]+-[0-9]+-[0-9a-f]{8}\.safetensors")


@dataclass(frozen=True, slots=True, order=True)
class Share:
    """A box that one rank writes, in all its kinds; a part of a box it holds."""

    name: str
    box: Box


def directory_of(step: int) -> str:
    """Where the checkpoint after `step` committed steps lies, below `checkpoints/`."""
    return f"step-{step}"


def step_of(directory: str) -> int | None:
    """The step of a checkpoint's directory; None for a foreign name.

    >>> step_of("step-10000"), step_of("step-final"), step_of("step-007")
    (10000, None, None)
    """
    match = _STEP.fullmatch(directory)
    return int(match[1]) if match else None


def shard_name(*, generation: int, worker: str, part: int, token: str) -> str:
    """A file's name; `token` is 8 hex digits drawn for the attempt."""
    return f"g{generation}-{worker}-{part}-{token}.safetensors"


def is_ours(file_name: str) -> bool:
    """A file that raymega may remove from a checkpoint's directory."""
    name = file_name.removeprefix(".").split(".tmp", 1)[0]
    return name in (MANIFEST, SET_ASIDE) or _SHARD.fullmatch(name) is not None


def key_of(name: str, kind: str, box: Box) -> str:
    """The key of a piece inside a file."""
    return f"{name}|{kind}|{box}"


def parse_key(key: str) -> tuple[str, str, Box]:
    """(name, kind, box) of a key. Raises: ValueError if it is none."""
    name, kind, box = key.rsplit("|", 2)
    return name, kind, Box.parse(box)


def to_remove(steps: Iterable[int], *, newest: int, keep: int) -> tuple[int, ...]:
    """Which complete checkpoints go, oldest first, once `newest` is published.

    Later ones than `newest` are not counted and not touched: they belong to a future that was left.

    >>> to_remove([900, 1000, 9000, 10000], newest=10000, keep=3)
    (900,)
    """
    past = sorted(step for step in steps if step <= newest)
    return tuple(past[: max(0, len(past) - keep)])


def assign(
    holdings: Sequence[Iterable[Holding]], *, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[Share, ...], ...]:
    """Deal what is held to the ranks that write it, by rank; every element of every tensor once.

    Ranks that hold the same boxes share them equally, within one row of a large box or one small box.

    Args:
        holdings: by rank, what it holds; only counted ones are written.
        shapes: whole shape of every tensor of the model.
    Raises:
        RaymegaBug: the counted holdings leave a part of a tensor out, or hold it in boxes that overlap.
    """
    holders: dict[Share, list[int]] = defaultdict(list)
    for rank, held in enumerate(holdings):
        for holding in held:
            if holding.counted and holding.box.num_elements:
                holders[Share(holding.name, holding.box)].append(rank)
    _check_once(holders, shapes)
    groups: dict[tuple[int, ...], list[Share]] = defaultdict(list)
    for share in sorted(holders):
        groups[tuple(holders[share])].append(share)
    written: list[list[Share]] = [[] for _ in holdings]
    for ranks, shares in groups.items():
        for rank, part in zip(ranks, _deal(shares, len(ranks)), strict=True):
            written[rank] += part
    return tuple(tuple(sorted(shares)) for shares in written)


def _deal(shares: Sequence[Share], num_parts: int) -> list[list[Share]]:
    """Lay the boxes end to end and cut the line into equal parts; a piece goes where its middle lies."""
    total = sum(share.box.num_elements for share in shares)
    borders = [total * part // num_parts for part in range(1, num_parts)]
    parts: list[list[Share]] = [[] for _ in range(num_parts)]
    done = 0
    for share in shares:
        for piece in _cut_at([border - done for border in borders], share.box):
            parts[(2 * done + piece.num_elements) * num_parts // (2 * total)].append(Share(share.name, piece))
            done += piece.num_elements
    return parts


def _cut_at(borders: Iterable[int], box: Box) -> list[Box]:
    """Cut a large box between the rows nearest to the borders (elements from its start) that fall into it."""
    if box.num_elements < MIN_CUT_ELEMENTS:
        return [box]
    rows = box.sizes[0]
    row = box.num_elements // rows
    inside = {round(border / row) for border in borders if 0 < border < box.num_elements}
    stops = sorted(inside | {0, rows})
    return [box.rows(first, end) for first, end in pairwise(stops)]


def _check_once(shares: Iterable[Share], shapes: Mapping[str, tuple[int, ...]]) -> None:
    boxes: dict[str, list[Box]] = defaultdict(list)
    for share in shares:
        boxes[share.name].append(share.box)
    for name, shape in shapes.items():
        rest = uncovered(Box.whole(shape), by=boxes[name])
        if rest:
            raise RaymegaBug(f"no rank holds {name} {rest[0]} as counted, so no checkpoint could hold it", name=name)
    for name, held in boxes.items():
        for one, other in combinations(held, 2):
            if one.overlap(other):
                raise RaymegaBug(f"{name} is counted twice: in {one} and in {other}", name=name)
