"""Transaction events as they are read from their bytes.

A large body is parsed beside the loop, never inside a commit, and once: a terminal that has not received the answer
sends the same bytes again, and they are known by their digest.
"""

import hashlib

from posd.base.apart import APART_BYTES, read_apart
from posd.payments.wire import NotAnEvent, TransactionEvent, read_event

#: Large bodies whose reading is remembered. One takes about a kilobyte.
MAX_READINGS = 128


class BodyNotParsed(Exception):
    """A body is too large to be read inside a commit: it has to be read before."""

    def __init__(self, body: bytes) -> None:
        super().__init__()
        self.body = body


class EventReadings:
    """What bodies say; what large ones say is remembered by their digest."""

    def __init__(self) -> None:
        self._readings: dict[bytes, TransactionEvent | str] = {}  # or why it is no event

    async def read(self, body: bytes, sender: str) -> TransactionEvent:
        """Read an event; `sender` has one large body read at a time. Raise NotAnEvent."""
        if len(body) <= APART_BYTES:
            return read_event(body)
        digest = hashlib.sha256(body).digest()
        reading = self._readings.pop(digest, "") or await read_apart(_read, body, sender)
        self._readings[digest] = reading  # the newest is the last
        if len(self._readings) > MAX_READINGS:
            del self._readings[next(iter(self._readings))]
        return _event(reading)

    def within_commit(self, body: bytes) -> TransactionEvent:
        """Return an event that was read, or is small. Raise BodyNotParsed, NotAnEvent."""
        if len(body) <= APART_BYTES:
            return read_event(body)
        if (reading := self._readings.get(hashlib.sha256(body).digest())) is None:
            raise BodyNotParsed(body)
        return _event(reading)


def _read(body: bytes) -> TransactionEvent | str:
    try:
        return read_event(body)
    except NotAnEvent as error:
        return str(error)  # the error itself would keep the body, and all that was read of it


def _event(reading: TransactionEvent | str) -> TransactionEvent:
    if isinstance(reading, str):
        raise NotAnEvent(reading)
    return reading
