"""What an entry of a config means, given the type its field wants: a value, or faults that say what is wanted.

wanted            taken                                   refused
whole number      4096  1_000  1e5  "12"                  4096.5  010  1:30  2**16  true  on  inf
number            6e-5  1E-4  1.e-3  "6e-5"  3            .  010  1:30  true  inf  nan
true or false     true false yes no on off                1  "maybe"
text              abc  "no"  2e5 (as text)                no  None (plain: they look like something else)
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from math import ceil, floor
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from raymega.config.fault import Fault, nearest, one_of
from raymega.config.schema import Config, Section
from raymega.config.text import Entry, Listing, Mapping, Scalar

NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d{1,4})?")
LEADING_ZERO = re.compile(r"[-+]?0\d")
TRUE, FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
POWER = re.compile(r"(\d{1,19})(?:\*\*|\^)(\d{1,19})")
LARGEST = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Typed:
    """The value, of which the parts with faults are left out."""

    value: Any  # Any: whatever the field's type says
    faults: tuple[Fault, ...] = ()


def typed_section(entry: Entry, *, section: type[Section], key: str) -> Typed:
    """Read a section: every field that is right, and every fault of the others."""
    if isinstance(entry, Scalar) and entry.is_null:
        return Typed(value={})
    if not isinstance(entry, Mapping):
        problem = f"{_said(entry)} found; a section of keys is wanted"
        return _refused(entry, key, problem, f"It may hold {one_of(section.model_fields)}")
    hints = get_type_hints(section, include_extras=True)
    values: dict[str, Any] = {}
    faults: list[Fault] = []
    for name, child in entry.items.items():
        below = f"{key}.{name}" if key else name
        if name not in hints or name not in section.model_fields:
            faults.append(_unknown(name, below, entry, section))
            continue
        read = typed(child, want=hints[name], key=below)
        faults.extend(read.faults)
        if not read.faults or isinstance(read.value, dict):
            values[name] = read.value
    for name, info in section.model_fields.items():
        if info.is_required() and name not in entry.items:
            faults.extend(_refused(entry, f"{key}.{name}", "missing", f"Every entry has {', '.join(hints)}").faults)
    return Typed(value=values, faults=tuple(faults))


def typed(entry: Entry, *, want: Any, key: str) -> Typed:  # Any: a type annotation
    """Read one entry as the type `want`."""
    origin, args = get_origin(want), get_args(want)
    if isinstance(want, type) and issubclass(want, Section):
        return typed_section(entry, section=want, key=key)
    if origin in (Union, UnionType):
        return _typed_union(entry, want=want, key=key)
    if origin is tuple:
        return _typed_list(entry, want=want, key=key)
    if not isinstance(entry, Scalar) or entry.is_null:
        return _unlike(entry, want, key)
    value = _scalar(entry, args[0] if origin is Annotated else want)
    if value is None or (origin is Annotated and not _within(value, args[1:])):
        return _unlike(entry, want, key)
    return Typed(value=value)


def in_words(want: Any) -> str:  # Any: a type annotation
    """Say what a field wants."""
    origin, args = get_origin(want), get_args(want)
    if origin in (Union, UnionType):
        return " or ".join("null" if arg is NoneType else in_words(arg) for arg in args)
    if origin is Literal:
        return f"one of {', '.join(args)}" if len(args) > 1 else str(args[0])
    if origin is tuple:
        count = "" if args[-1] is Ellipsis else f" {len(args)} entries, each"
        return f"a list of{count} {in_words(args[0])}"
    if origin is Annotated:
        signs = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
        bounds = [f"{word} {bound}" for sign, word in signs.items() if (bound := _bound(args[1:], sign)) is not None]
        return f"{in_words(args[0])} {' and '.join(bounds)}".replace("number at", "number of at")
    if isinstance(want, type) and issubclass(want, Section):
        return "{" + ", ".join(want.model_fields) + "}"
    return {int: "a whole number", float: "a number", bool: "true or false", str: "text"}[want]


def _typed_union(entry: Entry, *, want: Any, key: str) -> Typed:
    """Read as the member that fits the entry's form: a list as the list, a word as the word it is, null as null."""
    members = get_args(want)
    if isinstance(entry, Scalar) and entry.is_null and NoneType in members:
        return Typed(value=None)
    lists = [member for member in members if get_origin(member) is tuple]
    if isinstance(entry, Listing) and lists:
        return typed(entry, want=lists[0], key=key)
    read = [typed(entry, want=member, key=key) for member in members if member is not NoneType and member not in lists]
    return next((found for found in read if not found.faults), _unlike(entry, want, key))


def _typed_list(entry: Entry, *, want: Any, key: str) -> Typed:
    args = get_args(want)
    if not isinstance(entry, Listing) or (args[-1] is not Ellipsis and len(args) != len(entry.items)):
        return _unlike(entry, want, key)
    wants = args[:1] * len(entry.items) if args[-1] is Ellipsis else args
    read = [typed(item, want=w, key=f"{key}[{i}]") for i, (item, w) in enumerate(zip(entry.items, wants, strict=True))]
    return Typed(value=tuple(item.value for item in read), faults=tuple(f for item in read for f in item.faults))


def _scalar(entry: Entry, want: Any) -> Any:
    """The value of a scalar read as `want`; None if it is none."""
    if not isinstance(entry, Scalar):
        return None
    text = entry.text.strip()
    if get_origin(want) is Literal:
        return text if text in get_args(want) else None
    if want is str:
        looks_else = entry.plain and text.lower() in {*TRUE, *FALSE, "none"}
        return None if looks_else or not text else text
    if want is bool:
        return True if text.lower() in TRUE else False if text.lower() in FALSE else None
    if not NUMBER.fullmatch(text) or LEADING_ZERO.match(text):
        return None
    number = Decimal(text)
    if want is float:
        return float(number) if abs(float(number)) != float("inf") else None
    return int(number) if abs(number) <= LARGEST and number == int(number) else None


def _within(value: Any, metadata: tuple[Any, ...]) -> bool:
    low, above = _bound(metadata, "ge"), _bound(metadata, "gt")
    high, below = _bound(metadata, "le"), _bound(metadata, "lt")
    return (
        (low is None or value >= low)
        and (above is None or value > above)
        and (high is None or value <= high)
        and (below is None or value < below)
    )


def _bound(metadata: tuple[Any, ...], sign: str) -> Any:
    bounds = [getattr(limit, sign, None) for info in metadata for limit in info.metadata]
    return next((bound for bound in bounds if bound is not None), None)


def _unknown(name: str, key: str, entry: Mapping, section: type[Section]) -> Fault:
    near = nearest(name, section.model_fields)
    elsewhere = [
        f"{other}.{field}"
        for other, info in Config.model_fields.items()
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section)
        for field in info.annotation.model_fields
    ]
    home = next((full for full in elsewhere if full.endswith(f".{name}")), None)
    if home is None and near is None:
        home = next((full for full in elsewhere if nearest(name, [full.partition(".")[2]])), None)
    inside = key.removesuffix(name)
    meant = home or (near and f"{inside}{near}")
    hint = f"Did you mean {meant}?" if meant else f"Known here: {', '.join(section.model_fields)}"
    return Fault(key=key, problem="unknown key", way_out=hint, place=entry.places[name])


def _unlike(entry: Entry, want: Any, key: str) -> Typed:
    return _refused(entry, key, f"{_said(entry)} found; {in_words(want)} is wanted", _way_out(entry, want))


def _way_out(entry: Entry, want: Any) -> str:
    text = entry.text.strip() if isinstance(entry, Scalar) else ""
    words = [word for arg in (want, *get_args(want)) if get_origin(arg) is Literal for word in get_args(arg)]
    optional = NoneType in get_args(want)
    if text and words and (near := nearest(text.lower(), words)):
        return f"Did you mean {near}?"
    if want is str or str in get_args(want):
        return f'Quote it, as in "{text}"' + (", or write null" if optional else "") if text else "Write some text"
    if isinstance(entry, Scalar) and entry.is_null:
        return "Leave the key out for its default, or give a value"
    example = _example(next((arg for arg in get_args(want) if get_origin(arg) is Annotated), want), text)
    return f"Write {example}" + (", or null for the default" if optional else "")


def _example(want: Any, text: str) -> str:
    """Values that would be taken, near the one that was not."""
    kind = get_args(want)[0] if get_origin(want) is Annotated else want
    metadata = get_args(want)[1:] if get_origin(want) is Annotated else ()
    low, high = _bound(metadata, "ge"), _bound(metadata, "le")
    power = POWER.fullmatch(text)
    if LEADING_ZERO.match(text) and kind is not bool:
        return text.lstrip("+-0") or "0"
    if kind is int and power and int(power[2]) < LARGEST.bit_length():
        return str(int(power[1]) ** int(power[2]))
    number = Decimal(text) if NUMBER.fullmatch(text) else None  # takes all that NUMBER does; float takes no 1__0
    if number is not None and high is not None and number > high:
        return f"{high} or less"
    if kind is int and number is not None and (low or 0) < number < LARGEST:
        return f"{floor(number)} or {ceil(number)}"
    if number is not None and low is not None and number < low:
        return f"{low} or more"
    return {int: "it out, as in 4096 or 1e5", float: "it out, as in 0.1 or 6e-5", bool: "true or false"}.get(
        kind, in_words(want)
    )


def _refused(entry: Entry, key: str, problem: str, way_out: str) -> Typed:
    return Typed(value=None, faults=(Fault(key=key, problem=problem, way_out=way_out, place=entry.place),))


def _said(entry: Entry) -> str:
    if isinstance(entry, Scalar):
        return "nothing" if entry.is_null else entry.text if entry.plain else f'"{entry.text}"'
    return "a list" if isinstance(entry, Listing) else "a section"
