"""Launches of fake workers on the Ray of the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from raymega.driver.cluster.ray_session import NAMESPACE
from tests.driver.rig import Rig
from tests.waiting import eventually


def actors_of(run: str) -> list[str]:
    named = [actor["name"] for actor in ray.util.list_named_actors(all_namespaces=True)]
    return [name for name in named if name.startswith(f"{NAMESPACE}:{run}")]


@pytest.fixture
def rig(local_ray: None, tmp_path: Path) -> Iterator[Rig]:
    """Makes launches in a fresh run directory; afterwards no actor of them may be left."""
    made = Rig(tmp_path)
    yield made
    eventually(lambda: actors_of(tmp_path.name) == [], limit_s=20.0)  # Ray hears of a process that ended itself
    assert made.living_workers() == []
    assert not made.run_dir.lock.exists()
