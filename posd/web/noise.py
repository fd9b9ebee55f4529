"""What strangers do on the LAN, collapsed: a counter a kind, and at most one log line a minute a kind."""

import time
from collections import Counter

import structlog

#: A flood is one line a minute, in seconds.
LINE_EVERY_SECONDS = 60.0

log = structlog.get_logger("posd.listener")


class Noise:
    """Counts refused connections and requests, and tells of them now and then."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._untold: Counter[str] = Counter()
        self._told_at: dict[str, float] = {}

    def note(self, kind: str, peer: str, detail: str | None = None) -> None:
        """Count one more of a kind; the line names the newest peer and how many there were since the last line."""
        self.counts[kind] += 1
        self._untold[kind] += 1
        now = time.monotonic()
        if now - self._told_at.get(kind, -LINE_EVERY_SECONDS) >= LINE_EVERY_SECONDS:
            self._told_at[kind] = now
            log.warning("listener.refused", kind=kind, peer=peer, count=self._untold.pop(kind), detail=detail)
