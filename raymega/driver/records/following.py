"""What was added to a file of lines since one looked last: each look reads only that.

look 1   step 1 .. step 40 |                 read whole
look 2                     | step 41         read from there on
look 3   step 1 .. step 39, step 40, ..      another file stands in its place, since the run has gone back: read
                                             whole, and told from step 42 on
"""

from collections.abc import Iterator
from pathlib import Path

from raymega.driver.records.json_lines import newest_line, placed_lines
from raymega.driver.records.line_shapes import Line, Shape


class Added:
    """The lines of a file that have not been told yet. `by`: the key of their number, which grows."""

    def __init__(self, file: Path, *, shape: Shape, by: str) -> None:
        self._file, self._shape, self._by = file, shape, by
        self._told, self._offset, self._inode = 0, 0, 0

    def skip(self) -> None:
        """Leave out what is there already."""
        newest = newest_line(self._file, shape=self._shape)
        self._told = 0 if newest is None else newest[self._by]

    def lines(self) -> Iterator[Line]:
        """Tell them. Raises: StateError naming a line that is broken."""
        try:
            found = self._file.stat()
        except FileNotFoundError:
            return
        if found.st_ino != self._inode or found.st_size < self._offset:
            self._inode, self._offset = found.st_ino, 0
        for place, line in placed_lines(self._file, offset=self._offset, shape=self._shape):
            self._offset = place.end
            if line[self._by] > self._told:
                self._told = line[self._by]
                yield line
