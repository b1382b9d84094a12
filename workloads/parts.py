"""Which parts of a measurement are asked for: those named, or all; an unknown one is refused before anything starts."""

import argparse
from collections.abc import Collection, Sequence


def asked_of(words: Sequence[str], *, program: str, parts: Collection[str], hint: str = "") -> list[str]:
    """The parts in `words`, all where none is named. Ends the program with exit code 2 where one is unknown."""
    unknown = [word for word in words if word not in parts]
    if unknown:
        told = f"{', '.join(unknown)}: no such part. There are: {' '.join(parts)}{hint}"
        argparse.ArgumentParser(prog=f"python -m {program}").error(told)
    return list(words or parts)
