"""What strangers do on the LAN, collapsed: a counter a kind, and at most one log line a minute a kind."""

import asyncio
from collections import Counter
from contextlib import suppress

import structlog

#: A flood is one line a minute, in seconds.
LINE_EVERY_SECONDS = 60.0

log = structlog.get_logger("posd.listener")


class RejectedTraffic:
    """Counts refused connections and requests, and tells of them now and then.

    The first of a kind is told at once; what follows is told as a number when its minute is over.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        #: What was not told yet, of the kinds whose minute runs: how many, the newest peer and its detail.
        self._untold: dict[str, tuple[int, str, str | None]] = {}

    def note(self, kind: str, peer: str, detail: str | None = None) -> None:
        """Count one more of a kind; a line names the newest peer and how many there were since the last line."""
        self.counts[kind] += 1
        if (untold := self._untold.get(kind)) is not None:
            self._untold[kind] = (untold[0] + 1, peer, detail)
            return
        _tell(kind, 1, peer, detail)
        with suppress(RuntimeError):  # without a loop there is nobody who comes back to it
            asyncio.get_running_loop().call_later(LINE_EVERY_SECONDS, self._minute_over, kind)
            self._untold[kind] = (0, peer, detail)

    def _minute_over(self, kind: str) -> None:
        count, peer, detail = self._untold.pop(kind, (0, "", None))
        if count:
            _tell(kind, count, peer, detail)
            self._untold[kind] = (0, peer, detail)
            asyncio.get_running_loop().call_later(LINE_EVERY_SECONDS, self._minute_over, kind)

    def tell(self) -> None:
        """Tell what is left: posd stops."""
        for kind, (count, peer, detail) in self._untold.items():
            if count:
                _tell(kind, count, peer, detail)
        self._untold.clear()


def _tell(kind: str, count: int, peer: str, detail: str | None) -> None:
    log.warning("listener.refused", kind=kind, peer=peer, count=count, detail=detail)
