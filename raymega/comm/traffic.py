"""What a worker has sent through its groups: calls and bytes by operation, counted where they are made.

A collective counts once per member, with the bytes of the member's own tensor; a message counts at its sender
(`send`) and at its receiver (`recv`). Groups of one count nothing, since nothing travels.
"""

from collections import Counter

COLLECTIVES = frozenset(
    {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "all_gather_bytes", "barrier"}
)


class Traffic:
    """Counters of one fabric, keyed (group key, operation)."""

    def __init__(self) -> None:
        self._calls: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()

    def add(self, key: str, op: str, num_bytes: int) -> None:
        self._calls[key, op] += 1
        self._bytes[key, op] += num_bytes

    def calls(self, op: str | None = None, *, group: str = "") -> int:
        """Calls of `op` (None: of all) in the groups whose key contains `group`."""
        return sum(n for (key, name), n in self._calls.items() if op in (None, name) and group in key)

    def num_bytes(self, op: str | None = None, *, group: str = "") -> int:
        """Bytes of `op` (None: of all) in the groups whose key contains `group`."""
        return sum(n for (key, name), n in self._bytes.items() if op in (None, name) and group in key)

    @property
    def collectives(self) -> int:
        """Calls that involved a whole group."""
        return sum(n for (_, op), n in self._calls.items() if op in COLLECTIVES)

    @property
    def messages(self) -> int:
        """Messages sent to one peer."""
        return self.calls("send")

    def by_op(self) -> dict[str, int]:
        """Calls by operation, over all groups."""
        total: Counter[str] = Counter()
        for (_, op), n in self._calls.items():
            total[op] += n
        return dict(total)

    def reset(self) -> None:
        self._calls.clear()
        self._bytes.clear()
