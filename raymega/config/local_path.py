"""The absolute path that a person's word means, or why it can mean none.

    runs            /home/me/x/runs     the working directory may be gone
    ~/runs          /home/me/runs       the user, or the one named, may have no home directory
    x * 300         refused             a name has at most NAME_BYTES, a path PATH_BYTES; source: linux/limits.h

Looks at no file: whether it is there is asked by whoever opens it.
"""

import os
from pathlib import Path

from raymega.errors import ConfigError

NAME_BYTES = 255
PATH_BYTES = 4095


def local_path(place: str, *, key: str) -> Path:
    """The path that `place`, the value of `key`, means here. Raises: ConfigError where no file can have it."""
    try:
        path = Path(place).expanduser().absolute()
        sizes = [len(os.fsencode(part)) for part in path.parts]
    except RuntimeError as error:  # of pathlib, where nobody tells a home directory
        raise ConfigError(
            f"{key}: {place} begins with a home directory that is not known here. Write the path from / on."
        ) from error
    except FileNotFoundError as error:
        raise ConfigError(
            f"{key}: {place} is relative, and the working directory is gone. Write the path from / on, or change to "
            "a directory that is there."
        ) from error
    except UnicodeEncodeError as error:
        raise ConfigError(f"{key}: {place!a} is no text that can name a file. Use whole characters.") from error
    if max(sizes) > NAME_BYTES or len(os.fsencode(path)) > PATH_BYTES:
        raise ConfigError(
            f"{key}: {place[:40]}... has a name of {max(sizes):,} bytes in a path of {len(os.fsencode(path)):,}; a "
            f"name has at most {NAME_BYTES}, a path {PATH_BYTES:,}. Use a shorter one."
        )
    return path
