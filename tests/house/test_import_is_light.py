"""`import raymega` and `raymega --help` load neither torch nor ray, and few modules.

Modules are counted and not seconds, which hang on what else the machine does: help has about 150 and takes 0.15 s;
a library such as pydantic or rich brings a hundred more.
"""

import json
import subprocess
import sys

import pytest

from tests.house.rooms import PURE, room_of, sources

HEAVY = "torch", "ray"
MOST_MODULES = 200


def loaded_after(statement: str) -> dict[str, object]:
    """Run `statement` in an interpreter of its own: which heavy modules it loaded, and how many of all kinds."""
    code = (
        f"import json, sys\ntry:\n    {statement}\nexcept SystemExit:\n    pass\n"
        f"heavy = [name for name in {HEAVY} if name in sys.modules]\n"
        "print(json.dumps({'heavy': heavy, 'count': len(sys.modules)}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stderr.splitlines()[-1])


def pure_modules() -> list[str]:
    files = [file for file in sources() if room_of(file) in PURE]
    return [".".join(file.with_suffix("").parts[file.parts.index("raymega") :]) for file in files]


def test_import_raymega_is_light():
    loaded = loaded_after("import raymega")
    assert loaded["heavy"] == []
    assert loaded["count"] < MOST_MODULES


def test_help_is_light():
    call = "import raymega.cli.app as c, sys; sys.argv = ['raymega', '--help']; c.main()"
    loaded = loaded_after(call)
    assert loaded["heavy"] == []
    assert loaded["count"] < MOST_MODULES


def test_the_pure_floors_load_neither_torch_nor_ray():
    assert loaded_after(f"import {', '.join(pure_modules())}")["heavy"] == []


@pytest.mark.parametrize("module", HEAVY)
def test_this_guard_can_fail(module: str, tmp_path, monkeypatch):
    (tmp_path / f"{module}.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert loaded_after(f"import {module}")["heavy"] == [module]


def test_a_large_library_shows_in_the_count():
    assert loaded_after("import raymega.config.schema")["count"] > MOST_MODULES
