"""A wall clock that jumps, for one process: libfaketime moves it as a file says, while the monotonic one goes on."""

from collections.abc import Mapping
from pathlib import Path

#: Where Debian's package libfaketime has it; the one for threads.
LIBRARIES = tuple(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
#: How the machine's own time stands in the file.
RIGHT = "+0"
#: Seconds of a day and an hour, by the letter that the form of a step has.
UNITS = {"d": 86_400, "h": 3_600}


class WallClock:
    """The file that says by how much the daemon's wall clock differs."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.set(RIGHT)

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs in its environment to have this clock."""
        return {
            "LD_PRELOAD": str(LIBRARIES[0]),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "DONT_FAKE_MONOTONIC": "1",
        }

    def set(self, step: str) -> None:
        """Let it differ from now on: `+400d`, `-1h`, `+0`."""
        seconds = int(step[:-1]) * UNITS[step[-1]] if step[-1] in UNITS else int(step)
        new = self._file.with_suffix(".new")
        new.write_text(f"{seconds:+}\n")
        new.replace(self._file)  # it is read at each call
