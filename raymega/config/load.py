"""How the text of a config becomes a `Config`: every fault found at once, each with its place and its way out.

    text  -> text.read        entries with places          not YAML, keys that stand twice
    --set -> text.merged      laid over them
          -> typed            values of the wanted types   unknown keys, wrong values
          -> Config
          -> rules            what relates the keys        heads by tp, layers by pp, batch by micro-batch, ...

The faces read the file; what comes back is one frozen value, or one `ConfigError` that names everything.
"""

from dataclasses import replace
from typing import Any

import yaml

from raymega.config.fault import Fault, Place
from raymega.config.proposal import proposal, written
from raymega.config.rules import faults_of
from raymega.config.schema import Config
from raymega.config.text import Entry, merged, places, read, read_override
from raymega.config.typed import FALSE, TRUE, typed_section
from raymega.errors import ConfigError


def load(text: str, *, source: str, overrides: tuple[str, ...] = ()) -> Config:
    """Read a config.

    Args:
        text: YAML; empty for the defaults.
        source: what messages call the text, such as its file's name.
        overrides: `a.b=c`, laid over the text in order.

    Raises: ConfigError with every fault, one a line; facts: faults, and the proposal as overrides that pass.
    """
    entry, faults = read(text, source=source)
    for override in overrides:
        key, value, found = read_override(override)
        entry = entry if found else merged(entry, key, value)
        faults.extend(found)
    typed = typed_section(entry, section=Config, key="")
    faults.extend(typed.faults)
    config = Config.model_validate(typed.value or {})
    unread = frozenset(fault.key.partition("[")[0] for fault in faults)
    broken = faults_of(config, unread=unread)
    faults.extend(_placed(fault, entry=entry, source=source) for fault in broken)
    if faults:
        raise _refusal(faults, changes=written(proposal(config)) if broken else (), source=source)
    return config


def check(config: Config, *, source: str = "config") -> None:
    """Hold a config that was not read from text, such as one built in Python, to the same rules.

    Raises: ConfigError with every fault.
    """
    broken = faults_of(config)
    if broken:
        raise _refusal([*broken], changes=written(proposal(config)), source=source)


def to_yaml(config: Config) -> str:
    """The config as text that `load` reads back as an equal one."""
    return yaml.dump(config.model_dump(mode="json"), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)


def to_line(section: str, values: dict[str, Any]) -> str:
    """A section as one line of YAML that `load` reads back, whatever its texts hold."""
    told = yaml.dump(
        values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=float("inf"), default_flow_style=True
    )
    return f"{section}: {told.rstrip()}"


def schema() -> dict[str, Any]:
    """The JSON schema of a config file, each field with its description."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def _placed(fault: Fault, *, entry: Entry, source: str) -> Fault:
    """The fault with the place of its key; of its section or the file, where the key has its default."""
    where = places(entry)
    if fault.key in where:
        return replace(fault, place=where[fault.key])
    place = where.get(fault.key.partition(".")[0]) or Place(source=source)
    return replace(fault, place=place, problem=f"{fault.problem} (not given; this is the default)")


def _refusal(faults: list[Fault], *, changes: tuple[str, ...], source: str) -> ConfigError:
    several = [f"{source}: {len(faults)} faults"] if len(faults) > 1 else []
    lines = [*several, *(str(fault) for fault in faults)]
    if changes:
        lines.append("One way that passes: " + " ".join(f"--set {change}" for change in changes))
    return ConfigError("\n".join(lines), faults=tuple(faults), proposal=changes)


class _Dumper(yaml.SafeDumper):
    """Quotes the words that `load` would not take for text."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    quoted = value.lower() in {*TRUE, *FALSE, "none"}
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if quoted else None)


_Dumper.add_representer(str, _text)
