"""The mesh at one moment, and over time.

mesh_picture            a box for each worker, a row for each replica, a column for each stage (and shard); spot nodes
mesh_history_picture    a bar for each worker, as long as it had a place, in the colour of its stage

    doing      |start|======= training =======|r|===== training ===|
    n1   w0    |     |        stage 0                              |
         w1    |     |        stage 1         x                           x: it was lost
         w4    |                               |    stage 1        |
               0 s         1 min         2 min         3 min             time that the run was up
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from raymega.config.fault import counted
from raymega.pictures.colors import DOING, EVENTS, LOST, STANDBY, stage_color
from raymega.pictures.scale import Scale, time_ticks, time_words
from raymega.pictures.svg import FAINT, PAPER, RULE, WIDTH, Svg, box, fits, legend, line, picture, text
from raymega.plan.plan import Plan

CELL_W, CELL_H, HEAD_H, SIDE_W = 132, 44, 22, 76
NODE_LETTERS = 8
LEFT, RIGHT, TOP, ROW_H = 132, 32, 26, 19
MOST_ROWS, MOST_CELLS = 40, 64
LEAST_W = 2.0  # of a stretch: a repair takes a fraction of a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """A worker had a place from `begin_s` to `end_s`. `stage`: None: it stood by; `words`: its place."""

    worker: str
    node: str
    stage: int | None
    begin_s: float
    end_s: float
    words: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """What the run did from `begin_s` to `end_s`: a key of `colors.DOING`."""

    what: str
    begin_s: float
    end_s: float


def mesh_picture(plan: Plan, *, nodes: Mapping[str, str], spot: Collection[str] = ()) -> Svg:
    """Every worker of a plan, a row each replica, coloured by stage; of a wide mesh its first replicas.

    Args:
        nodes: worker -> its node, as it is to be written.
        spot: nodes that may be taken back at any time.
    """
    mesh = plan.mesh
    shown = max(1, min(mesh.dp, MOST_CELLS // max(1, mesh.pp * mesh.tp)))
    parts = [
        text(f"stage {stage}", x=SIDE_W + stage * mesh.tp * CELL_W + 4, y=15, bold=True) for stage in range(mesh.pp)
    ]
    for rank, worker in enumerate(plan.workers):
        at = mesh.coord(rank)
        if at.replica < shown:
            left, top = SIDE_W + (at.stage * mesh.tp + at.shard) * CELL_W, HEAD_H + at.replica * CELL_H
            parts += _cell(
                worker, at.stage, node=nodes.get(worker, ""), lost=worker not in plan.living, x=left, y=top,
                shard=f"shard {at.shard}  " if mesh.tp > 1 else "", spot=nodes.get(worker) in spot,
            )  # fmt: skip
    parts += [text(f"replica {row}", x=4, y=HEAD_H + row * CELL_H + 26, bold=True) for row in range(shown)]
    height = HEAD_H + shown * CELL_H + 4
    if shown < mesh.dp:
        parts.append(text(f"and {counted(mesh.dp - shown, noun='replica')} more", x=4, y=height + 10, color=FAINT))
        height += 18
    return picture(parts, width=SIDE_W + mesh.pp * mesh.tp * CELL_W + 4, height=height, title=f"mesh {mesh}")


def _cell(
    worker: str, stage: int, *, node: str, lost: bool, shard: str, spot: bool, x: float, y: float
) -> list[str]:  # fmt: skip
    where = "others do its part" if lost else f"on {node[:NODE_LETTERS]}" if node else ""
    color, ink = (LOST, FAINT) if lost else (stage_color(stage), PAPER)
    return [
        box(
            x=x + 2, y=y + 2, width=CELL_W - 4, height=CELL_H - 4, color=color, round_=4,
            hint=f"{worker} {shard}{where}{', a spot node' if spot else ''}",
        ),
        text("nobody" if lost else worker, x=x + 10, y=y + 19, color=ink, bold=True),
        *([text("spot", x=x + CELL_W - 10, y=y + 18, anchor="end", color=ink, size=10)] if spot else []),
        text(f"{shard}{where}", x=x + 10, y=y + 34, color=ink, size=11),
    ]  # fmt: skip


def mesh_history_picture(stays: Sequence[Stay], *, doings: Sequence[Doing], begins_s: Sequence[float] = ()) -> Svg:
    """Who had which place when.

    Args:
        begins_s: when the run was started again after the first time.
    """
    end_s = max([*(stay.end_s for stay in stays), *(one.end_s for one in doings)], default=0.0)
    across = Scale(low=0.0, high=end_s, begin=LEFT, end=WIDTH - RIGHT)
    rows = _rows(stays)
    shown = rows[:MOST_ROWS]
    bottom = TOP + ROW_H * (1 + len(shown)) + 8
    parts = legend([(DOING[what], what) for what in DOING if any(one.what == what for one in doings)], x=LEFT, y=14)
    parts += [text("the run is", x=8, y=TOP + 13, bold=True)]
    parts += [
        box(
            x=across.at(one.begin_s), y=TOP + 2, height=ROW_H - 5,
            width=max(LEAST_W, across.at(one.end_s) - across.at(one.begin_s)),
            color=DOING[one.what], hint=f"{one.what} for {time_words(one.end_s - one.begin_s)}",
        )
        for one in sorted(doings, key=lambda one: one.what != "training")  # what is short lies on top
    ]  # fmt: skip
    for number, (node, worker) in enumerate(shown):
        top, is_first = TOP + 8 + ROW_H * (number + 1), number == 0 or shown[number - 1][0] != node
        parts += _labels(node, worker, y=top + 13, is_first=is_first)
        for stay in stays:
            if (stay.node, stay.worker) == (node, worker):
                parts += _bar(stay, across, y=top)
    parts += [
        line(x=across.at(at), y=TOP, to_x=across.at(at), to_y=bottom, color="#111111", dashed=True) for at in begins_s
    ]
    parts += _clock(across, end_s, y=bottom)
    height = bottom + 30
    if len(shown) < len(rows):
        parts.append(text(f"and {counted(len(rows) - len(shown), noun='worker')} more", x=8, y=height + 6, color=FAINT))
        height += 16
    return picture(parts, height=height, title="the mesh over time")


def _rows(stays: Sequence[Stay]) -> list[tuple[str, str]]:
    """(node, worker) by node, each in the order of appearance."""
    order = sorted(stays, key=lambda stay: (stay.begin_s, len(stay.worker), stay.worker))
    nodes = list(dict.fromkeys(stay.node for stay in order))
    return [
        (node, worker) for node in nodes for worker in dict.fromkeys(stay.worker for stay in order if stay.node == node)
    ]


def _labels(node: str, worker: str, *, y: float, is_first: bool) -> list[str]:
    named = [text(f"node {node[:NODE_LETTERS]}", x=8, y=y, color=FAINT, size=11)] if is_first else []
    rule = [line(x=8, y=y - 15, to_x=WIDTH - RIGHT, to_y=y - 15, color=RULE)] if is_first else []
    return [*rule, *named, text(worker, x=LEFT - 8, y=y, anchor="end")]


def _bar(stay: Stay, across: Scale, *, y: float) -> list[str]:
    x, width = across.at(stay.begin_s), across.at(stay.end_s) - across.at(stay.begin_s)
    color = STANDBY if stay.stage is None else stage_color(stay.stage)
    hint = f"{stay.worker}: {stay.words} for {time_words(stay.end_s - stay.begin_s)}"
    parts = [box(x=x, y=y + 1, width=width, height=ROW_H - 3, color=color, hint=hint, edge=PAPER)]
    words = next((words for words in (stay.words, stay.words.split(",")[0]) if fits(words, width=width, size=11)), "")
    if words:
        parts.append(text(words, x=x + 5, y=y + 13, size=11, color=FAINT if stay.stage is None else PAPER))
    if stay.lost:
        parts.append(
            text("\u2715", x=x + width, y=y + 14, anchor="middle", color=EVENTS["worker lost"], bold=True, size=15)
        )
    return parts


def _clock(across: Scale, end_s: float, *, y: float) -> list[str]:
    parts = [line(x=LEFT, y=y, to_x=WIDTH - RIGHT, to_y=y, color=FAINT), text("time up", x=8, y=y + 17, bold=True)]
    for at in time_ticks(end_s):
        parts += [
            line(x=across.at(at), y=y, to_x=across.at(at), to_y=y + 5, color=FAINT),
            text(time_words(at), x=across.at(at), y=y + 18, anchor="middle", color=FAINT),
        ]
    return parts
