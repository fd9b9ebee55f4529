"""An app on Hypercorn's own `serve`, with the settings and the certificate that posd's listener has."""

import asyncio
import signal
import socket
from pathlib import Path

from hypercorn.asyncio import serve
from starlette.applications import Starlette

from posd.httpd.connection import http_config

#: As the daemon has it, in seconds.
KEEP_ALIVE_SECONDS = 15.0


async def serve_stock(app: Starlette, certificate: Path, key: Path) -> None:
    """Serve until SIGTERM; print the port when it listens."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sock = socket.create_server(("127.0.0.1", 0))
    config = http_config(KEEP_ALIVE_SECONDS)
    config.keep_alive_max_requests = 2**31  # it would close after a thousand, which posd does not
    config.certfile, config.keyfile, config.alpn_protocols = str(certificate), str(key), ["http/1.1"]
    print(sock.getsockname()[1], flush=True)
    config.bind = [f"fd://{sock.detach()}"]
    await serve(app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]
