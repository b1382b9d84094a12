"""`import raymega` and `raymega --help` load neither torch nor ray and take less than half a second."""

import json
import subprocess
import sys

import pytest

from tests.house.rooms import PURE, room_of, sources

HEAVY = "torch", "ray"


def loaded_after(statement: str) -> dict[str, object]:
    """Run `statement` in an interpreter of its own: which heavy modules it loaded, and its processor seconds."""
    code = (
        "import json, sys, time\nstart = time.process_time()\n"
        f"try:\n    {statement}\nexcept SystemExit:\n    pass\n"
        f"heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "print(json.dumps({'heavy': heavy, 'cpu_s': time.process_time() - start}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stderr.splitlines()[-1])


def fastest(statement: str) -> float:
    return min(float(loaded_after(statement)["cpu_s"]) for _ in range(3))


def pure_modules() -> list[str]:
    files = [file for file in sources() if room_of(file) in PURE]
    return [".".join(file.with_suffix("").parts[file.parts.index("raymega") :]) for file in files]


def test_import_raymega_is_light():
    assert loaded_after("import raymega")["heavy"] == []
    assert fastest("import raymega") < 0.5


def test_help_is_light():
    call = "import raymega.cli.app as c, sys; sys.argv = ['raymega', '--help']; c.main()"
    assert loaded_after(call)["heavy"] == []
    assert fastest(call) < 0.5


def test_the_pure_floors_load_neither_torch_nor_ray():
    assert loaded_after(f"import {', '.join(pure_modules())}")["heavy"] == []


@pytest.mark.parametrize("module", HEAVY)
def test_this_guard_can_fail(module: str, tmp_path, monkeypatch):
    (tmp_path / f"{module}.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert loaded_after(f"import {module}")["heavy"] == [module]
