"""What becomes of what is printed where nobody takes it: a full disk, a reader that has gone, a closed stream.

    a verb that tells    > /dev/full    OutputLost, with which `cli.start` ends the process
    a run                > /dev/full    one line on stderr; it trains on, and ends with its own exit code

What a stream could not write goes nowhere after that, so that nothing fails again as the process ends.
"""

import io
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OutputLost(OSError):
    """Standard output takes no more. `cause`: why; this error has no number of its own, for which others would look."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"standard output cannot be written: {cause.strerror}")
        self.cause = cause


class Written(io.FileIO):
    """Bytes to an open file; the first time that it takes none `lost` is told, and from then on they go nowhere."""

    def __init__(self, number: int, *, lost: Callable[[OSError], None]) -> None:
        super().__init__(number, "w", closefd=False)
        self._lost = lost

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            send_nowhere(self)
            self._lost(error)
            return memoryview(data).nbytes


def outlasting(out: TextIO | None, *, follow: str) -> TextIO:
    """Standard output for a run, which its end does not harm: once it takes no more, that is said on stderr.

    Args:
        out: None where it was closed when the process began.
        follow: the command that shows the run all the same.
    """
    return cast(TextIO, _Outlasting(out, follow=follow))


class _Outlasting(io.TextIOBase):
    def __init__(self, out: TextIO | None, *, follow: str) -> None:
        self._out, self._follow = out, follow

    @property
    def encoding(self) -> str:  # type: ignore[override]  # io has it as a variable
        return self._out.encoding if self._out is not None else "utf-8"

    def isatty(self) -> bool:
        return self._out is not None and self._out.isatty()

    def write(self, text: str, /) -> int:
        with self._told() as out:
            out.write(text)
        return len(text)

    def flush(self) -> None:
        with self._told() as out:
            out.flush()

    @contextmanager
    def _told(self) -> Iterator[TextIO]:
        try:
            yield self._out if self._out is not None else io.StringIO()
        except OSError as error:
            cause = error.cause if isinstance(error, OutputLost) else error
            send_nowhere(self._out)
            self._out = None
            tell(f"raymega: {OutputLost(cause)}. The run does without; to see it: {self._follow}")


def tell(text: str) -> None:
    """Print on stderr; where that takes no more either, what is left to say goes nowhere."""
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        send_nowhere(sys.stderr)


def send_nowhere(stream: io.IOBase | TextIO | None) -> None:
    """Let what is written to the file below a stream go nowhere; one without a file is left as it is."""
    with suppress(io.UnsupportedOperation):
        if stream is not None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def raise_lost(error: OSError) -> NoReturn:
    """Give up: what `Written` is told by a program that has nothing else to do."""
    raise OutputLost(error) from error
