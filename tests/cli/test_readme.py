"""All texts, and the help itself, name only commands, options, make targets, keys and files that there are."""

import re
import shlex
from collections.abc import Iterator

import pytest
import typer.main

from raymega.cli.app import app
from raymega.config.schema import Config
from raymega.notebook.run import Run
from tests.cli.test_app import commands
from tests.house.rooms import PACKAGE, ROOT

TEXTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("workloads/*/README.md")])
SECTIONS = "|".join(Config.model_fields)


def code_of(text: str) -> Iterator[str]:
    """Every line of a block of code, fenced or indented, and every span of code."""
    for block in re.findall(r"```.*?\n(.*?)```", text, flags=re.DOTALL):
        yield from (line.removeprefix("$ ").strip() for line in block.splitlines())
    for line in re.findall(r"^    (\S.*)", text, flags=re.MULTILINE):
        yield from re.split(r"\s{3,}", line)  # several in a line, or a word about one
    yield from re.findall(r"(?<!`)`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


CODE = [line for text in TEXTS for line in code_of(text.read_text())]


def said(word: str) -> list[str]:
    """All code that begins with `word`."""
    return [line for line in CODE if line.split()[:1] == [word]]


def is_there(name: str) -> bool:
    """Whether a dotted name is a key of a config, something of a run, or a module of the package."""
    section, _, key = name.partition(".")
    fields = Config.model_fields[section].annotation.model_fields
    return key in fields or (section == "run" and hasattr(Run, key)) or (PACKAGE / section / f"{key}.py").exists()


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


@pytest.mark.parametrize("name", sorted({line for line in CODE if re.fullmatch(rf"({SECTIONS})\.[a-z_]+", line)}))
def test_a_key_that_is_named_exists(name: str):
    assert is_there(name)


@pytest.mark.parametrize(
    "name", sorted({*re.findall(r"\b(?:raymega|workloads|tests|docs)/[a-z0-9_/.-]*[a-z0-9_]", "\n".join(CODE))})
)
def test_a_file_that_is_named_exists(name: str):
    assert (ROOT / name).exists()
