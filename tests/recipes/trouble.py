"""A socket in front of the daemon's socket. Some calls get a problem of posd. The other calls pass."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from tests.support.connections import shut


@asynccontextmanager
async def troubled(socket: Path, code: str, status: int, *calls: str) -> AsyncIterator[str]:
    """Serve the socket for the block. Yield its path. `calls`: beginnings of the request lines to disturb."""
    problem = {"type": f"urn:posd:problem:{code}", "title": code, "status": status, "detail": f"{code}!", "code": code}
    body = json.dumps(problem).encode()
    head = f"HTTP/1.1 {status} Trouble\r\ncontent-type: application/problem+json\r\ncontent-length: {len(body)}\r\n"
    answer = head.encode() + b"connection: close\r\n\r\n" + body

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                request = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:  # the client only checked for a listener
                return
            if request.decode().startswith(calls):
                writer.write(answer)
                return
            within, without = await asyncio.open_unix_connection(socket)
            with closing(without):
                lines = [line for line in request.split(b"\r\n") if not line.lower().startswith(b"connection:")]
                lines.insert(1, b"connection: close")  # the next call then uses another connection
                without.write(b"\r\n".join(lines))
                await asyncio.gather(_copy(reader, without), _copy(within, writer))

    path = socket.parent / "troubled.sock"
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield str(path)
    finally:
        await shut(server)
        path.unlink(missing_ok=True)  # the server removes the socket file from Python 3.13 on


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()
