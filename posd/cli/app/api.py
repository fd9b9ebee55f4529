"""The local API for the commands: `posd.client`'s connection, called by method and path.

A command shows what posd said word for word, of a newer posd too: so it works on documents and bytes, not on types.
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from posd.client import wire
from posd.client.calls import REPLY_SECONDS, Call, Reply, StreamItem
from posd.client.connection import Connection
from posd.client.errors import ForeignAnswer, Problem, Unreachable
from posd.client.exact import decode, encode

__all__ = ["Api", "Call", "ForeignAnswer", "Problem", "Reply", "StreamItem", "Unreachable", "decode", "probe"]

METRICS_URL = "http://posd/metrics"


class Api(Connection):
    """The local API behind one Unix socket. Threads may share it."""

    def __init__(self, socket: Path | str) -> None:
        super().__init__(str(socket))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        also: Collection[int] = (),
        seconds: float = REPLY_SECONDS,
    ) -> Reply:
        """GET `path` (below /v1). `also` names 4xx and 5xx that are answers here, where they do not bear a problem.

        Wait `seconds` for the answer. Raise Problem or Unreachable.
        """
        return self.call(Call("GET", path, params or {}, seconds=seconds, also=also))

    def put(self, path: str, body: object) -> Reply:
        """PUT `body` as JSON. Raise Problem or Unreachable."""
        return self.call(Call("PUT", path, body=encode(body)))

    def post(self, path: str, body: object | None = None, *, seconds: float = REPLY_SECONDS) -> Reply:
        """POST `body` as JSON, or nothing; wait `seconds` for the answer. Raise Problem or Unreachable."""
        return self.call(Call("POST", path, body=None if body is None else encode(body), seconds=seconds))

    def receive(self, path: str, body: object, *, seconds: float) -> Iterator[bytes]:
        """POST `body` and yield the bytes of the answer as they come. Raise Problem or Unreachable: they end early."""
        return self.pieces(Call("POST", path, body=encode(body), seconds=seconds))

    def metrics(self) -> str:
        """Get the metrics as Prometheus reads them; they stand outside of the versioned API."""
        return self.text(Call("GET", METRICS_URL))


def probe(path: Path) -> None:
    """Raise Unreachable where the socket cannot be connected to."""
    wire.probe(str(path))
