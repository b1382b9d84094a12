"""The floors of the house, low to high, and what each source file imports; read from the text, nothing is executed."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "raymega"

FLOORS = (
    {"errors"},
    {"config", "mesh"},
    {"pipeline"},
    {"metrics", "model_shape"},
    {"plan"},
    {"layout", "pictures"},
    {"control"},
    {"comm"},
    {"model", "train", "data", "checkpoint", "interop"},
    {"worker", "sim"},
    {"driver"},
    {"report"},
    {"cli", "job", "notebook", "ray_train"},
)
PURE = set().union(*FLOORS[:7], {"sim"})
BRICKS = {"comm", "model", "train", "data", "checkpoint", "interop", "worker"}
FACES = FLOORS[-1]


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(file: Path) -> str:
    """The room a file of the package lies in; empty for the package's own __init__."""
    first = file.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def floor_of(room: str) -> int:
    return next(number for number, rooms in enumerate(FLOORS) if room in rooms)


def imports(text: str) -> Iterator[str]:
    """The modules that `text` imports anywhere, functions included, by their full names."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            yield from (f"{node.module}.{name.name}" for name in node.names if node.module == "raymega")


def faults(*, file: Path, text: str) -> list[str]:
    """What `text`, lying at `file`, imports against the rules of the house."""
    room, found = room_of(file), []
    for module in sorted(set(imports(text))):
        top, _, rest = module.partition(".")
        target = rest.partition(".")[0]
        if top == "raymega" and target and room and target != room and target not in {"__version__", "presets"}:
            if floor_of(target) >= floor_of(room):
                found.append(f"{file.name} ({room}) imports {module}, which is not on a lower floor")
            if target == "control" and room in BRICKS:
                found.append(f"{file.name} ({room}) imports {module}: hands know no brain")
        if top in {"torch", "ray"} and room in PURE:
            found.append(f"{file.name} ({room}) imports {module}: the pure floors know neither torch nor ray")
        if top == "ray" and not (room in {"driver", *FACES} or file == PACKAGE / "worker" / "ray_actor.py"):
            found.append(
                f"{file.name} ({room}) imports {module}: ray lives in driver, worker/ray_actor.py and the faces"
            )
    return found
