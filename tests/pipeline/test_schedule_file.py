import pytest

from raymega.errors import ConfigError
from raymega.pipeline.actions import show_program
from raymega.pipeline.catalog import schedule, schedule_names
from raymega.pipeline.schedule_file import read_table
from tests.pipeline.pipelines import fitting_chunks, pipeline

TWO = ("0F0,0F1,,0B0,0B1", ",1F0,1B0,1F1,1B1")


@pytest.mark.parametrize("name", schedule_names())
def test_every_schedule_written_to_a_table_is_read_back(name: str) -> None:
    programs = pipeline(name, num_stages=3, num_microbatches=5, chunks=fitting_chunks(name))
    rows = tuple(",".join(map(str, program)) for program in programs.values())
    row, known = schedule("mine.csv", rows=rows), schedule(name)
    read = pipeline("mine.csv", num_stages=3, num_microbatches=5, chunks=fitting_chunks(name), rows=rows)
    assert read == programs
    assert (row.kinds, row.folds, row.chunks) == (known.kinds, known.folds, fitting_chunks(name))


def test_empty_cells_are_idle_and_micro_batches_those_of_a_replica() -> None:
    made = schedule("mine.csv", rows=TWO).program(stage=1, num_stages=2, microbatches=(4, 9))
    assert show_program(made) == "1F4 1B4 1F9 1B9"
    assert schedule("mine.csv", rows=TWO).in_flight(stage=0, num_stages=2, num_microbatches=2) == 2


def test_a_whole_backward_among_split_ones_runs_its_parts_in_a_row() -> None:
    made = read_table(("0F0,0F1,0I0,0B1,0W0",), name="mine.csv")
    assert show_program(made.programs[0]) == "0F0 0F1 0I0 0I1 0W1 0W0"


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (("0F0,OF1",), r"mine\.csv, row 1: 'OF1' is no action\. Write stage, one of F B I W, micro-batch"),
        (("", ""), r"mine\.csv has no actions"),
        (("0F0,0B0", "0F1,0B1"), r"row 1 has \[0\]; row 2 has \[0\]\. Virtual stage v stands in row v modulo 2"),
        (("0F0,0F1,0B0", "1F0,1B0,1F1,1B1"), r"no schedule of a step: 0B1 is missing"),
        (("0F0,0B0,0F0",), r"0F0 stands 2 times in row 1"),
        (("0F0,0W0,0I0",), r"row 1 needs its own 0I0 before 0W0"),
        (("0F0,0F1,0B1,0B0", "1F0,1B0,1F1,1B1"), r"row 2 sends 1B0 before 1B1, row 1 takes in 1B1 first"),
        (("0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"), r"deadlock: row 1 waits for 1B0 of row 2"),
    ],
)
def test_a_table_that_is_no_schedule_is_refused_and_told_why(rows: tuple[str, ...], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_table(rows, name="mine.csv")


def test_another_number_of_micro_batches_is_refused_with_a_way_out() -> None:
    with pytest.raises(ConfigError, match=r"table is of 2 micro-batches a replica; here are 3\. Set batch_size"):
        schedule("mine.csv", rows=TWO).program(stage=0, num_stages=2, microbatches=(0, 1, 2))
