"""What the verbs do that speak with a run while it lives: find it, ask it, say what it answers.

demo: n1 will be gone in 30 s; dp=2 tp=1 pp=2 goes on as dp=1 tp=1 pp=2 after the next step
"""

import re
import sys
from pathlib import Path
from shlex import quote

import ray

from raymega.config.chaos import parse
from raymega.config.fault import counted
from raymega.control.commands import Answer
from raymega.driver.cluster.drain import node_named, this_node
from raymega.driver.finding import directory_named, end_of, live_run, name_of
from raymega.driver.hands.trace_replay import Laid, Replay
from raymega.errors import ClusterError, ConfigError
from raymega.mesh import Mesh
from raymega.sim.drawing import time_words
from raymega.sim.node_trace import NodeTrace, read_trace

AXES = {"dp": "data parallel", "tp": "tensor parallel", "pp": "pipeline"}


def drained(word: str, *, node: str | None, deadline_s: float) -> str:
    """Have a run leave a node, this one where none is named; what it answers. Raises: ClusterError if it refuses."""
    with live_run(word) as run:
        found = this_node() if node is None else node_named(node, rows=ray.nodes())
        answer, untold = run.drain(found, deadline_s=deadline_s, cause="raymega drain")
        agreed = f"{run.name}: {_accepted(answer, run=run.name)}"
        return f"{agreed}\nRay goes on placing work there: {untold}" if untold else agreed


def resized(word: str, *, devices: int | None, plan: str | None) -> str:
    """Have a run go on with another number of devices, or as another mesh. Raises: ClusterError if it refuses."""
    if (devices is None) == (plan is None):
        raise ConfigError("resize wants to know one thing: either --devices N or --plan dp=2,tp=2,pp=1.")
    mesh = None if plan is None else mesh_of(plan)
    with live_run(word) as run:
        return f"{run.name}: {_accepted(run.resize(devices=devices, mesh=mesh), run=run.name)}"


def rewound(word: str, *, step: int) -> str:
    """Have a run go back to a checkpoint that is kept. Raises: StateError if it is not; ClusterError if it refuses."""
    with live_run(word) as run:
        return f"{run.name}: {_accepted(run.rewind(step), run=run.name)}"


def disturbed(word: str, *, orders: tuple[str, ...], trace: str | None, speed: float, least: int, seed: int) -> str:
    """Have things go wrong in a run on purpose. Raises: ConfigError if it cannot carry all of them out."""
    if not orders and trace is None:
        raise ConfigError(
            'chaos wants to know what: orders, as "kill node=1 step=40", or a trace of nodes, --trace FILE.'
        )
    for order in orders:
        parse(order)
    replay = None if trace is None else Replay(trace=trace_in(trace), speed=speed, least=least, seed=seed)
    with live_run(word) as run:
        laid = run.chaos(orders, replay=replay)
        lines = [f"{run.name}: {parse(order)}" for order in orders]
        if replay is not None:
            lines.append(f"{run.name}: {'it is over, or only just starting' if laid is None else _told(replay, laid)}")
        return "\n".join(lines)


def trace_in(path: str) -> NodeTrace:
    """Read a trace of nodes. Raises: ConfigError if there is none, or it is none."""
    try:
        return read_trace(Path(path).read_text(encoding="utf-8-sig"), source=path)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text in UTF-8"
        raise ConfigError(f"--trace {path} cannot be read: {why}. Give a file of t_s,n_nodes.") from error


def _told(replay: Replay, laid: Laid) -> str:
    trace = replay.trace
    left, came = (sum(len(getattr(t, kind)) for t in laid.course) for kind in ("leaving", "coming"))
    return (
        f"{counted(trace.changes, noun='change')} of {counted(trace.most, noun='node')} in "
        f"{time_words(trace.end_s)}, over its {len(laid.devices_of)} "
        f"{'nodes' if len({node for node, _ in laid.devices_of.values()}) > 1 else 'devices'}: {left} leave and {came} "
        f"come back within {time_words(laid.lasts_s)}"
    )


def stopped(word: str, *, grace_s: float | None) -> tuple[str, int]:
    """End a run at its next boundary, saved; what it says, and its exit code. One that is over is left alone."""
    directory = directory_named(word)
    over = None if directory is None else end_of(directory)
    if over is not None:
        return f"{name_of(word, directory)}: it is over already: {over['reason']}", 0
    with live_run(word) as run:
        try:
            ended = run.stop(grace_s=grace_s)
        except KeyboardInterrupt:
            print(f"run {run.name} stops all the same; see raymega status {quote(word)}", file=sys.stderr)
            raise
    if ended is not None:
        return f"{run.name}: {ended.reason}", ended.exit_code
    told = None if directory is None else end_of(directory)
    if told is None:
        raise ClusterError(f"run {run.name} is gone and did not say how it ended. See `raymega status {quote(word)}`.")
    return f"{run.name}: {told['reason']}", int(told["exit_code"])


def mesh_of(word: str) -> Mesh:
    """Read `dp=2,tp=2,pp=1`; an axis that is not named has one rank. Raises: ConfigError naming what is wrong."""
    sizes: dict[str, int] = {}
    for part in word.split(","):
        axis, equals, size = part.strip().partition("=")
        if axis not in AXES:
            axes = ", ".join(f"{axis} ({name})" for axis, name in AXES.items())
            raise ConfigError(f"--plan: {part!r} names no axis. Axes are {axes}.")
        if not equals or not re.fullmatch(r"[1-9]\d{0,8}", size):
            raise ConfigError(f"--plan: {axis}={size} found; a number from 1 is wanted, as in dp=2,tp=2,pp=1.")
        sizes[axis] = int(size)
    return Mesh(dp=sizes.get("dp", 1), tp=sizes.get("tp", 1), pp=sizes.get("pp", 1))


def _accepted(answer: Answer, *, run: str) -> str:
    if not answer.accepted:
        raise ClusterError(f"run {run} goes on as it is: {answer.reason}")
    return answer.reason
