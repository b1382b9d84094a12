"""What a YAML text says, before anyone asks what it means: nested entries, each with its place.

    training:                  Mapping
      lr: 6e-5                   Scalar("6e-5", plain)        run.yaml:2
      betas: [0.9, "0.95"]       Listing
                                   Scalar("0.9", plain), Scalar("0.95", quoted)

YAML 1.1 would read 6e-5 as text, 010 as 8, 1:30 as 90, `no` as false, and let the second of two equal keys win.
So scalars stay text here, until `typed` knows which type is wanted, and an equal key is a fault.
"""

from dataclasses import dataclass, replace

import yaml

from raymega.config.fault import Fault, Place

PLAIN_TAGS = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
MOST_ENTRIES = 10_000
NULLS = {"", "~", "null", "Null", "NULL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One written value; `plain` where it stands without quotes."""

    text: str
    plain: bool
    place: Place

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in NULLS


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A sequence of entries."""

    items: "tuple[Entry, ...]"
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """Entries by key. `places` are those of the keys."""

    items: "dict[str, Entry]"
    places: dict[str, Place]
    place: Place


Entry = Scalar | Listing | Mapping


def read(text: str, *, source: str) -> tuple[Entry, list[Fault]]:
    """Read a config file's text; with faults, what could be read besides them."""
    empty = Scalar(text="", plain=True, place=Place(source=source, line=1))
    try:
        node, faults = yaml.compose(text, Loader=yaml.BaseLoader), list[Fault]()
        if node is not None and _size(node, known={}) > MOST_ENTRIES:
            problem, way_out = f"more than {MOST_ENTRIES:,} entries, with aliases written out", "Use fewer aliases"
            return empty, [Fault(key="", problem=problem, way_out=way_out, place=Place(source=source))]
        return (empty if node is None else _entry(node, key="", source=source, faults=faults)), faults
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        where = Place(source=source, line=line)
        problem = "not YAML: " + ", ".join(part for part in (error.context, error.problem) if part)
        return empty, [Fault(key="", problem=problem, way_out="Indent with spaces; write `key: value`", place=where)]
    except yaml.YAMLError as error:
        problem = f"not YAML: {str(error).splitlines()[0]}"
        return empty, [Fault(key="", problem=problem, way_out="Save it as UTF-8 text", place=Place(source=source))]
    except RecursionError:
        problem, way_out = "a part holds itself, or lies too deep in others", "Write sections that hold keys"
        return empty, [Fault(key="", problem=problem, way_out=way_out, place=Place(source=source))]


def read_override(override: str, *, source: str = "--set") -> tuple[str, Entry, list[Fault]]:
    """Read `a.b=c`: the dotted key, and what its value says in YAML."""
    key, equals, text = override.partition("=")
    key, place = key.strip(), Place(source=source)
    if not equals or not all(key.split(".")):
        fault = Fault(key=override, problem="this is no assignment", way_out="Write key=value, as in training.lr=6e-5")
        return key, Scalar(text="", plain=True, place=place), [replace(fault, place=place)]
    entry, faults = read(text, source=source)
    return key, _at(entry, place), [replace(fault, key=key, place=place) for fault in faults]


def merged(base: Entry, key: str, entry: Entry) -> Entry:
    """`base` with `entry` at the dotted `key`; mappings are merged, all else is replaced."""
    head, _, rest = key.partition(".")
    if not isinstance(base, Mapping):  # what was there gives way
        base = Mapping(items={}, places={}, place=entry.place)
    items, places = base.items, base.places
    below = items.get(head, Scalar(text="", plain=True, place=entry.place))
    if rest:
        new = merged(below, rest, entry)
    elif isinstance(entry, Mapping):
        new = below
        for name, child in entry.items.items():
            new = merged(new, name, child)
    else:
        new = entry
    return Mapping(items={**items, head: new}, places={**places, head: entry.place}, place=base.place)


def places(entry: Entry, *, key: str = "") -> dict[str, Place]:
    """Where each dotted key was written."""
    found: dict[str, Place] = {}
    if isinstance(entry, Mapping):
        for name, child in entry.items.items():
            below = f"{key}.{name}" if key else name
            found |= {below: entry.places[name]} | places(child, key=below)
    return found


def _size(node: yaml.Node, *, known: dict[yaml.Node, int]) -> int:
    """Entries of `node`, what an alias stands for counted each time: lists of aliases of lists grow by powers."""
    if isinstance(node, yaml.ScalarNode):
        return 1
    if node not in known:
        parts = node.value if isinstance(node, yaml.SequenceNode) else [part for pair in node.value for part in pair]
        known[node] = 1 + sum(_size(part, known=known) for part in parts)
    return known[node]


def _joined(text: str) -> str | None:
    """The text with its pairs of surrogates joined, as JSON escapes one character; None if half of one is alone."""
    try:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def _entry(node: yaml.Node, *, key: str, source: str, faults: list[Fault]) -> Entry:
    place = Place(source=source, line=node.start_mark.line + 1)
    if node.tag not in PLAIN_TAGS:
        faults.append(Fault(key=key, problem=f"{node.tag} is a YAML tag", way_out="Write a plain value", place=place))
    if isinstance(node, yaml.ScalarNode):
        text = _joined(node.value)
        if text is None or "\0" in text:
            problem = (
                "half a character (a surrogate without its other half) in it"
                if text is None
                else "a NUL character in it"
            )
            faults.append(Fault(key=key, problem=problem, way_out="Leave it out", place=place))
        return Scalar(text=text or "", plain=node.style is None, place=place)
    if isinstance(node, yaml.SequenceNode):
        items = tuple(
            _entry(item, key=f"{key}[{i}]", source=source, faults=faults) for i, item in enumerate(node.value)
        )
        return Listing(items=items, place=place)
    children: dict[str, Entry] = {}
    where: dict[str, Place] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            at = Place(source=source, line=line)
            faults.append(Fault(key=key, problem="a list or a section is no key", way_out="Write key: value", place=at))
            continue
        name = str(key_node.value)
        below = f"{key}.{name}" if key else name
        if name in children:
            problem = f"the key stands twice, first on line {where[name].line}"
            at = Place(source=source, line=line)
            faults.append(Fault(key=below, problem=problem, way_out="Keep one of them", place=at))
            continue
        where[name] = Place(source=source, line=line)
        children[name] = _entry(value_node, key=below, source=source, faults=faults)
    return Mapping(items=children, places=where, place=place)


def _at(entry: Entry, place: Place) -> Entry:
    """The same entry, all of it written at `place`."""
    if isinstance(entry, Scalar):
        return replace(entry, place=place)
    if isinstance(entry, Listing):
        return Listing(items=tuple(_at(item, place) for item in entry.items), place=place)
    items = {name: _at(child, place) for name, child in entry.items.items()}
    return Mapping(items=items, places=dict.fromkeys(items, place), place=place)
