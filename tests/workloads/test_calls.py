"""What `workloads` calls of raymega takes what it is given: most of it runs for minutes, and in no test."""

import ast
import inspect
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKLOADS = sorted(file.relative_to(ROOT) for file in (ROOT / "workloads").rglob("*.py"))


def calls_of(tree: ast.AST) -> Iterator[tuple[ast.Call, Callable[..., object]]]:
    """Each call of something that is imported from raymega by name."""
    named = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("raymega")
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in named:
            module, name = named[node.func.id]
            yield node, getattr(import_module(module), name)


def why_not(call: ast.Call, target: Callable[..., object]) -> str:
    """Why `target` does not take what `call` gives it; what is unpacked may be anything."""
    args = [arg for arg in call.args if not isinstance(arg, ast.Starred)]
    words = {word.arg: None for word in call.keywords if word.arg is not None}
    is_whole = len(args) == len(call.args) and len(words) == len(call.keywords)
    bind = inspect.signature(target).bind if is_whole else inspect.signature(target).bind_partial
    try:
        bind(*args, **words)
    except TypeError as error:
        return f"line {call.lineno}: {error}"
    return ""


@pytest.mark.parametrize("file", WORKLOADS, ids=str)
def test_what_a_workload_calls_takes_what_it_is_given(file: Path):
    found = [why_not(call, target) for call, target in calls_of(ast.parse((ROOT / file).read_text()))]
    assert [why for why in found if why] == []


def test_a_word_too_few_or_too_many_is_found():
    text = "from raymega.plan.auto import predicted\npredicted(1)\npredicted(1, 2, cluster=3, x=2)"
    (call, target), (other, _) = calls_of(ast.parse(text))
    assert "missing a required argument" in why_not(call, target)
    assert "unexpected keyword argument 'x'" in why_not(other, target)
