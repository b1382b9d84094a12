"""Names for runs that were given none: two words that are easy to say and to type."""

import random
from pathlib import Path

ADJECTIVES = (
    "amber", "brave", "brisk", "calm", "clear", "crisp", "deft", "early", "fair", "fleet", "fresh", "gentle", "glad",
    "grand", "happy", "keen", "kind", "light", "lively", "lucky", "mellow", "merry", "mild", "neat", "noble", "plain",
    "proud", "quick", "quiet", "rapid", "ready", "sharp", "silver", "sleek", "smart", "steady", "swift", "tidy", "warm",
    "wise",
)  # fmt: skip
ANIMALS = (
    "badger", "bear", "beaver", "bison", "crane", "crow", "deer", "dolphin", "eagle", "falcon", "finch", "fox", "gecko",
    "goose", "hare", "hawk", "heron", "horse", "ibex", "jay", "koala", "lark", "lion", "lynx", "marten", "mole",
    "moose", "otter", "owl", "panda", "puffin", "raven", "robin", "seal", "stork", "swan", "tiger", "trout", "whale",
    "wolf",
)  # fmt: skip


def draw_name(runs: Path, *, dice: random.Random) -> str:
    """A name that no run below `runs` has."""
    while True:
        for _ in range(20):
            name = f"{dice.choice(ADJECTIVES)}-{dice.choice(ANIMALS)}"
            if not (runs / name).exists():
                return name
        name = f"{name}-{dice.randrange(10_000)}"
        if not (runs / name).exists():
            return name
