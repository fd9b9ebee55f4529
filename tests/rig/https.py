"""Raw HTTPS to the webhook listener. The client sends exactly the bytes of a test."""

import asyncio
import functools
import ssl
from pathlib import Path
from urllib.parse import urlsplit


async def connect(port: int, ca: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a verified TLS connection to the listener on loopback."""
    return await asyncio.open_connection("127.0.0.1", port, ssl=_context(ca), server_hostname="127.0.0.1")


def _context(ca: Path) -> ssl.SSLContext:
    """Return a TLS context that trusts the certificates in a file. Contexts are cached, because a new context takes as
    long as a handshake.
    """
    return _trusting(ca.read_text())


@functools.lru_cache(8)
def _trusting(ca: str) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=ca)


async def send(port: int, ca: Path, data: bytes) -> bytes:
    """Send raw bytes. Return all bytes until the listener closes."""
    reader, writer = await connect(port, ca)
    try:
        writer.write(data)
        await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


def post(url: str, body: bytes, *, method: str = "POST", headers: str = "") -> bytes:
    """Return the bytes of a POST with `connection: close`."""
    parts = urlsplit(url)
    head = f"{method} {parts.path} HTTP/1.1\r\nhost: {parts.netloc}\r\ncontent-type: application/json\r\n"
    return f"{head}{headers}connection: close\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def deliver(url: str, body: bytes, ca: Path, *, method: str = "POST") -> int:
    """Deliver a callback as a terminal does. Return the status."""
    answer = await send(urlsplit(url).port or 443, ca, post(url, body, method=method))
    return status_of(answer)


def status_of(answer: bytes) -> int:
    """Return the status of a raw HTTP response."""
    return int(answer.split(b" ", 2)[1])


def read_head(head: bytes) -> tuple[list[str], dict[str, str]]:
    """Return the three words of the first line, and the headers with names in lower case."""
    line, *fields = head.decode("latin-1").rstrip().split("\r\n")
    pairs = (field.partition(":") for field in fields)
    return line.split(" ", 2), {name.lower(): value.strip() for name, _, value in pairs}
