from pathlib import Path

import pytest

from raymega.config.load import load, to_yaml
from raymega.config.resolve import resolve
from raymega.config.schema import Config
from raymega.errors import ConfigError
from raymega.mesh import Mesh
from raymega.pipeline.actions import show_program
from raymega.plan.arranging import arranged
from raymega.plan.plan import Plan
from raymega.plan.planner import plan_for
from raymega.plan.programs import check_programs, programs_of

ROWS = "0F0,0F1,,0I0,0W0,0B1\n# the last stage\n,1F0,1B0,1F1,1B1\n\n"


def config(*, schedule: str, chunks: int | None = None, layers: int = 8, pp: int = 4, batch: int = 8) -> Config:
    return Config.model_validate(
        {
            "model": {"num_layers": layers},
            "parallelism": {"schedule": schedule, "chunks": chunks, "pipeline_model_parallel_size": pp},
            "training": {"batch_size": batch, "micro_batch_size": 1},
        }
    )


@pytest.mark.parametrize(
    ("asked", "pp", "expected"),
    [
        (config(schedule="interleaved"), 4, ("interleaved", 8)),
        (config(schedule="interleaved", chunks=4), 2, ("interleaved", 8)),
        (config(schedule="interleaved", layers=7), 4, ("1f1b", 4)),
        (config(schedule="zb-v"), 1, ("1f1b", 1)),
        (config(schedule="zb-v"), 3, ("zb-v", 6)),
        (config(schedule="zb-h2"), 2, ("zb-h2", 2)),
    ],
)
def test_a_mesh_runs_the_config_s_schedule_where_it_can(asked: Config, pp: int, expected: tuple[str, int]) -> None:
    found = arranged(asked, Mesh(dp=1, pp=pp, tp=1))
    assert (found.schedule, len(found.layers)) == expected


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v"])
def test_plans_of_every_schedule_pass_the_check(name: str) -> None:
    asked = config(schedule=name, batch=7).model_copy(
        update={"parallelism": config(schedule=name).parallelism.model_copy(update={"data_parallel_size": 2})}
    )
    plan = plan_for(asked, workers={f"w{n}": "here" for n in range(8)}).plan
    assert plan.schedule == name
    check_programs(plan)
    assert Plan.from_json(plan.to_json()) == plan


def read(path: Path, *, text: str = ROWS, **changes: int) -> Config:
    path.write_text(text)
    asked = config(schedule=str(path), pp=2, **{"batch": 2, **changes})
    return resolve(asked, vocab_size=97, name="mine", seed=1)


def test_a_table_is_read_once_and_travels_with_config_and_plan(tmp_path: Path) -> None:
    full = read(tmp_path / "mine.csv")
    (tmp_path / "mine.csv").unlink()
    again = load(to_yaml(resolve(full, vocab_size=97, name="other", seed=2)), source="config.yaml")
    assert again == full
    plan = plan_for(again, workers={"w0": "here", "w1": "here"}).plan
    assert Plan.from_json(plan.to_json()) == plan
    assert [show_program(program) for program in programs_of(plan)] == [
        "0F0 0F1 0I0 0W0 0I1 0W1",
        "1F0 1I0 1W0 1F1 1I1 1W1",
    ]


@pytest.mark.parametrize(
    ("text", "changes", "words"),
    [
        (ROWS, {"batch": 3}, "of 2 micro-batches a replica; batch_size / micro_batch_size is 3"),
        (ROWS + "2F0,2B0,2F1,2B1", {}, r"it has 3 rows; every stage has one"),
        ("0F0,0B0", {}, r"it has 1 row; every stage has one"),
        ("0F0,0F1", {}, r"0B0 is missing"),
        (ROWS.replace("1F1,", ""), {}, r"1F1 is missing"),
    ],
)
def test_a_table_that_does_not_fit_the_mesh_is_refused(tmp_path: Path, text: str, changes: dict, words: str) -> None:
    asked = read(tmp_path / "mine.csv", text=text, **changes)
    with pytest.raises(ConfigError, match=words):
        arranged(asked, Mesh(dp=1, pp=2, tp=1))


def test_what_is_left_of_a_mesh_with_a_table_runs_1f1b(tmp_path: Path) -> None:
    found = arranged(read(tmp_path / "mine.csv"), Mesh(dp=1, pp=1, tp=1))
    assert (found.schedule, found.table) == ("1f1b", ())


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv cannot be read: .*Give a table of actions"):
        resolve(config(schedule=str(tmp_path / "none.csv"), pp=2), vocab_size=97, name="mine", seed=1)
