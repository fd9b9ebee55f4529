"""Telling the log of changes, after what caused them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from posd.storage.batch import Change

Kind = TypeVar("Kind", bound=Change)


def listener(kind: type[Kind], tell: Callable[[Kind], None]) -> Callable[[Sequence[Change]], None]:
    """Return a listener of the hub that calls `tell` with each change of that kind, one turn of the loop later.

    The caller that waited for the COMMIT goes on first, and logs what it was about. Then come its effects.
    """

    def tell_all(changes: Sequence[Kind]) -> None:
        for change in changes:
            tell(change)

    def hear(changes: Sequence[Change]) -> None:
        wanted = [change for change in changes if isinstance(change, kind)]
        if wanted:
            asyncio.get_running_loop().call_soon(tell_all, wanted)

    return hear
