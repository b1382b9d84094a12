"""Imports run downward only: the twin of the import-linter contracts, without the linter."""

import tomllib

import pytest

from tests.house.rooms import FLOORS, PACKAGE, ROOT, faults, room_of, sources


def test_every_room_imports_only_from_lower_floors():
    assert [fault for file in sources() for fault in faults(file=file, text=file.read_text())] == []


def test_every_room_has_chosen_its_floor():
    rooms = {room_of(file) for file in sources()} - {""}
    assert rooms <= set().union(*FLOORS)


def test_the_contracts_draw_the_same_floors():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    drawn = [{room.strip(" ()") for room in floor.split("|")} for floor in reversed(contracts[0]["layers"])]
    assert drawn == list(FLOORS)


@pytest.mark.parametrize(
    ("where", "text", "words"),
    [
        ("plan/plan.py", "from raymega.layout.shard_box import Box", "not on a lower floor"),
        ("mesh.py", "import raymega.config.schema", "not on a lower floor"),
        ("model/stage.py", "def f():\n    from raymega.train import optimizer", "not on a lower floor"),
        ("config/load.py", "from raymega import driver", "not on a lower floor"),
        ("control/loop.py", "import ray", "neither torch nor ray"),
        ("sim/clock.py", "import torch.nn", "neither torch nor ray"),
        ("worker/worker.py", "from raymega.control.loop import run", "no brain"),
        ("worker/worker.py", "import ray", "worker/ray_actor.py"),
    ],
)
def test_the_guard_can_fail(where: str, text: str, words: str):
    assert any(words in fault for fault in faults(file=PACKAGE / where, text=text))
