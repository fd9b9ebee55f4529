"""Files of JSON lines that outlive the process.

A line is handed to the operating system at once, which survives the end of this process in any form; it is not synced
to the disk, for a simulator need not survive a power cut of its host.
"""

from collections.abc import Iterator
from pathlib import Path


def take_up(path: Path) -> Iterator[bytes]:
    """Give the lines of a file, to its end; a last one that was cut short by a kill is taken off it. Raises OSError."""
    with path.open("rb+") as file:
        whole = 0
        for line in file:
            if not line.endswith(b"\n"):
                file.truncate(whole)
                return
            whole += len(line)
            yield line


# What the simulator refuses before it runs.


class SettingsError(ValueError):
    """Something in the settings cannot be; the message says what, why and what to do."""
