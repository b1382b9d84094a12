"""README, CONTRIBUTING and the help itself name only commands, options and make targets that there are."""

import re
import shlex

import pytest
import typer.main

from raymega.cli.app import app
from tests.cli.test_app import commands
from tests.house.rooms import ROOT

TEXTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


def said(word: str) -> list[str]:
    """Every line of a code block, and every code span, that begins with `word`."""
    found = []
    for text in ((ROOT / name).read_text() for name in TEXTS):
        blocks = re.findall(r"```.*?\n(.*?)```", text, flags=re.DOTALL)
        spans = re.findall(r"(?<!`)`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        lines = [line.removeprefix("$ ").strip() for block in blocks for line in block.splitlines()]
        found += [line for line in (*lines, *spans) if line.split()[:1] == [word]]
    return found


def options(line: str) -> set[str]:
    """The options that a `raymega` line uses and that its verb does not have."""
    words, command = shlex.split(line, comments=True)[1:], typer.main.get_command(app)
    words = words[: words.index("--")] if "--" in words else words  # what comes after is another program's
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    assert not getattr(command, "commands", {}), f"{line}: {words[:1]} is no verb"
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    return {word.partition("=")[0] for word in words if word.startswith("--")} - known


def examples() -> list[str]:
    """Every line of help that shows how a verb is typed."""
    helps = [command.help or "" for _, command in commands(typer.main.get_command(app))]
    lines = [line.strip().removeprefix("Example: ") for text in helps for line in text.splitlines()]
    return [line for line in lines if line.startswith("raymega ")]


def test_the_examples_of_the_help_are_found():
    assert len(examples()) >= len([*commands(typer.main.get_command(app))])


@pytest.mark.parametrize("line", sorted({*said("raymega"), *examples()} - {"raymega"}))
def test_a_command_that_is_named_exists_with_its_options(line: str):
    assert options(line) == set()


def test_this_guard_can_fail():
    assert options("raymega train nano --sett a=1") == {"--sett"}
    with pytest.raises(AssertionError, match="is no verb"):
        options("raymega trian")


def test_a_make_target_that_is_named_exists():
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {shlex.split(line, comments=True)[1] for line in said("make")}
    assert named <= targets
    assert {"train", "test"} <= named
