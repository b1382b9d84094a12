"""The notebooks run from their first cell to the last, and are kept without outputs."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.house.rooms import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LIMIT_S = 200
WITHOUT_RUNS = "03_plan_and_simulate"


def run(file: Path, *, folder: Path) -> nbformat.NotebookNode:
    book = nbformat.read(file, as_version=4)
    NotebookClient(book, timeout=LIMIT_S, resources={"metadata": {"path": str(folder)}}).execute()
    return book


def test_they_are_there_and_hold_no_outputs():
    assert [file.stem for file in NOTEBOOKS] == ["01_drive_a_run", "02_survive_a_kill", WITHOUT_RUNS]
    cells = [cell for file in NOTEBOOKS for cell in nbformat.read(file, as_version=4).cells]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of kernels and their sockets
def test_plans_and_simulations_show_themselves(tmp_path: Path):
    book = run(ROOT / "notebooks" / f"{WITHOUT_RUNS}.ipynb", folder=tmp_path)
    shown = [cell.outputs[-1].data["text/html"] for cell in book.cells if cell.cell_type == "code"]
    assert "dp=" in shown[0]
    assert "goodput" in shown[-1]


@pytest.mark.ray
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", ["01_drive_a_run", "02_survive_a_kill"])
def test_a_notebook_that_drives_runs_ends_as_it_says(name: str, tmp_path: Path):
    book = run(ROOT / "notebooks" / f"{name}.ipynb", folder=tmp_path)
    pictures = [out for cell in book.cells for out in cell.get("outputs", ()) if "<svg" in str(out.get("data", ""))]
    assert pictures
    assert not list(tmp_path.glob("runs/*/LOCK")), "every run has ended"
    shown = [out["data"]["text/plain"] for cell in book.cells for out in cell.get("outputs", ()) if "data" in out]
    assert not {"[]", "{}", "None"} & set(shown), "every cell that shows something has something to show"
