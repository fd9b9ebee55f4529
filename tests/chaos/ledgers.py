"""Ledgers: JSON lines that a process appends to, which can be killed in the middle of one."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_ledger(path: Path) -> list[Line]:
    """Read a ledger; a last line that a kill has cut short was never written."""
    return Tail(path).read()


class Tail:
    """A growing ledger, read from the last position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> list[Line]:
        """Return the added lines; an incomplete one is returned the next time, or never."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line, parse_float=Decimal) for line in whole.splitlines()]
