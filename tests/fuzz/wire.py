"""HTTP as bytes: requests that are well formed and strange, and the answer to one request on one connection."""

import json
import socket
import ssl
import time
from collections.abc import Sequence
from contextlib import suppress
from decimal import Decimal
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import Any, NamedTuple

#: Longest that an answer may take before it counts as stuck, in seconds.
PATIENCE_SECONDS = 60.0
#: How long until a connection that was turned away is tried again, in seconds.
AGAIN_SECONDS = 0.1


class Message(NamedTuple):
    """A request that is well formed HTTP; `chunks` None: with its length, else in pieces of so many bytes."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    chunks: int | None = None

    def encode(self) -> bytes:
        """Return it on the wire; it asks to close after the answer."""
        lines = [f"{self.method} {self.target} HTTP/1.1", "host: posd", "connection: close"]
        lines += [f"{name}: {value}" for name, value in self.headers]
        body = self.body
        if self.chunks is not None:
            lines.append("transfer-encoding: chunked")
            parts = [body[start : start + self.chunks] for start in range(0, len(body), self.chunks)]
            body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
        elif body or self.method in ("PUT", "POST"):
            lines.append(f"content-length: {len(body)}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Answer(NamedTuple):
    """What came back; `status` is 0 where the other side closed without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_float=Decimal)

    @property
    def content_type(self) -> str:
        return self.headers.get("content-type", "").split(";")[0]


def ask_local(path: Path, data: bytes, method: str = "GET") -> Answer:
    """Send bytes over a Unix socket and return the answer."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(str(path))
        return _ask(connection, data, method)


def ask_tls(port: int, context: ssl.SSLContext, data: bytes, method: str = "POST") -> Answer:
    """Send bytes over TLS to a port of this machine and return the answer.

    Who has shown no valid token too often is turned away before TLS, and comes again as a terminal does.
    """
    latest = time.monotonic() + PATIENCE_SECONDS
    while True:
        with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as plain:
            try:
                connection = context.wrap_socket(plain, server_hostname="127.0.0.1")
            except (ConnectionError, ssl.SSLEOFError):
                if time.monotonic() > latest:
                    raise
                time.sleep(AGAIN_SECONDS)
                continue
            with connection:
                return _ask(connection, data, method)


def _ask(connection: socket.socket, data: bytes, method: str) -> Answer:
    with suppress(BrokenPipeError, ConnectionResetError, ssl.SSLError):  # it may be answered before all of it was sent
        connection.sendall(data)
    answer = HTTPResponse(connection, method=method)
    try:
        answer.begin()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        # A stream of events has no end: its head is the answer.
        body = b"" if headers.get("content-type", "").startswith("text/event-stream") else answer.read()
        return Answer(answer.status, headers, body)
    except (HTTPException, ConnectionError, ssl.SSLError):
        return Answer(0, {}, b"")
    finally:
        answer.close()


def quoted(text: str) -> str:
    """Percent-encode every byte that could not stand in a target."""
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogatepass"))


_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")


def query(pairs: Sequence[tuple[str, str]]) -> str:
    """Return the query part of a target."""
    return "?" + "&".join(f"{quoted(name)}={quoted(value)}" for name, value in pairs) if pairs else ""
