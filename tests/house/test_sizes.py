"""Files, functions and classes stay small enough to be read in one go, and no error is swallowed unnamed."""

import ast
from collections.abc import Iterator

import pytest

from tests.house.rooms import PACKAGE, sources

MOST_LINES = {ast.FunctionDef: 60, ast.AsyncFunctionDef: 60, ast.ClassDef: 200}
FILE_LINES = 300
BROAD = {"Exception", "BaseException"}


def too_large(text: str) -> Iterator[str]:
    if (lines := text.count("\n")) > FILE_LINES:
        yield f"file has {lines} lines"
    for node in ast.walk(ast.parse(text)):
        limit = MOST_LINES.get(type(node))
        if limit is not None and node.end_lineno - node.lineno + 1 > limit:
            yield f"{node.name} has {node.end_lineno - node.lineno + 1} lines"


def swallows(text: str) -> Iterator[str]:
    """Handlers that catch everything without raising again, and every `hasattr`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ExceptHandler):
            caught = {name.id for name in ast.walk(node.type) if isinstance(name, ast.Name)} if node.type else BROAD
            if caught & BROAD and not isinstance(node.body[-1], ast.Raise):
                yield f"line {node.lineno} catches everything"
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hasattr":
            yield f"line {node.lineno} asks hasattr"


@pytest.mark.parametrize("rule", [too_large, swallows])
def test_the_package_keeps_the_rule(rule):
    assert [f"{file.relative_to(PACKAGE)}: {fault}" for file in sources() for fault in rule(file.read_text())] == []


@pytest.mark.parametrize(
    ("rule", "text"),
    [
        (too_large, "\n" * 301),
        (too_large, "def f():\n" + "    pass\n" * 60),
        (too_large, "class C:\n" + "    x = 1\n" * 200),
        (swallows, "try:\n    f()\nexcept:\n    pass\n"),
        (swallows, "try:\n    f()\nexcept (ValueError, Exception):\n    pass\n"),
        (swallows, "hasattr(x, 'y')\n"),
    ],
)
def test_this_guard_can_fail(rule, text: str):
    assert list(rule(text))


def test_what_is_raised_again_is_not_swallowed():
    assert not list(swallows("try:\n    f()\nexcept BaseException as error:\n    tell(error)\n    raise\n"))
