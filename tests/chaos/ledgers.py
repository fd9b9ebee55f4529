"""Ledgers: files of JSON lines. A kill of the process can cut the last line short."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read_ledger(path: Path) -> list[Line]:
    """Read a ledger, without a last line that a kill has cut short."""
    return Tail(path).read()


class Tail:
    """Reader of a growing ledger, from its last position."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0

    def read(self) -> list[Line]:
        """Return the new lines. An incomplete line follows later, or never."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._read)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._read += len(whole)
        return [json.loads(line, parse_float=Decimal) for line in whole.splitlines()]
