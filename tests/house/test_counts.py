"""What is counted for people is counted as they do, `1 worker` and `2 workers`: by `config.fault.counted`."""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.house.rooms import PACKAGE, sources

NOUNS = (
    "actions", "changes", "checkpoints", "chunks", "copies", "cores", "devices", "events", "files", "heads",
    "layers", "micro-batches", "moves", "nodes", "processes", "ranks", "records", "recoveries", "replicas", "requests",
    "rows", "samples", "seats", "shards", "stages", "steps", "tasks", "teams", "tensors", "updates", "workers",
)  # fmt: skip
PLURAL = re.compile(rf" (?:more |virtual |committed )?(?:{'|'.join(NOUNS)})\b(?!/)")


NO_TEXTS = {"data/open_data.py"}  # it names data, for programs that compare


def uncounted(text: str) -> Iterator[str]:
    """Texts in which a number stands before a plural, whatever the number is."""
    tree = ast.parse(text)
    own = {id(inner) for node in ast.walk(tree) if isinstance(node, ast.Assert) for inner in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in own:
            continue  # for whoever mends the program
        pairs = pairwise(node.values) if isinstance(node, ast.JoinedStr) else ()
        for number, after in pairs:
            if isinstance(number, ast.FormattedValue) and isinstance(after, ast.Constant):
                plural = PLURAL.match(after.value)
                if plural and is_count(number):
                    yield f"line {number.lineno}: {{{ast.unparse(number.value)}}}{plural[0]}"


def is_count(number: ast.FormattedValue) -> bool:
    """A whole number, as far as can be seen: no rate or share, nothing that was put into words, no constant."""
    if isinstance(number.value, ast.Name) and number.value.id.isupper():
        return False
    spec = ast.unparse(number.format_spec)[2:-1] if number.format_spec is not None else ""
    called = number.value.func if isinstance(number.value, ast.Call) else None
    return spec in ("", ",") and (called is None or ast.unparse(called) in ("len", "sum", "max", "min"))


def test_every_count_of_the_package_reads_well_for_one():
    names = {str(file.relative_to(PACKAGE)): file for file in sources()}
    assert [f"{n}: {told}" for n in sorted(names.keys() - NO_TEXTS) for told in uncounted(names[n].read_text())] == []


@pytest.mark.parametrize("text", ["f'{n} workers stay'", "f'{len(nodes)} more nodes'", "f'all {steps:,} steps'"])
def test_this_guard_can_fail(text: str):
    assert list(uncounted(text))


@pytest.mark.parametrize("text", ["f'{counted(n, noun=1)} stay'", "f'{rate:.1f} steps a second'", "f'{n} tokens/s'"])
def test_what_is_counted_or_measured_is_none(text: str):
    assert not list(uncounted(text))
