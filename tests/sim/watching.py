"""The turns of a simulation, for those who compare what was decided."""

from dataclasses import dataclass, field

import pytest

from raymega.control.loop import Turn
from raymega.sim import simulate as room
from raymega.sim.recorder import Recorder
from raymega.sim.simulate import Scenario, Simulation, simulate


@dataclass
class Watched:
    """A simulation and its turns."""

    done: Simulation
    turns: list[Turn] = field(default_factory=list)


def watched(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> Watched:
    turns = list[Turn]()

    class Keeping(Recorder):
        def saw(self, turn: Turn) -> None:
            turns.append(turn)
            super().saw(turn)

    with monkeypatch.context() as patch:
        patch.setattr(room, "Recorder", Keeping)
        return Watched(done=simulate(scenario), turns=turns)
