"""The yardstick: a Starlette app with one route that reads the body and answers 204, on posd's own listener.

With `--stock` it is served by Hypercorn's own `serve` instead, with the same settings and certificate.
"""

import argparse
import asyncio
import signal
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posd.base.clocks import monotonic, wall
from posd.httpd.admission import Gate, RejectedTraffic
from posd.httpd.server import Listener
from tests.bench.stock import KEEP_ALIVE_SECONDS, serve_stock

#: As the daemon has it.
MAX_CONNECTIONS = 512


async def take(request: Request) -> Response:
    """Read the body, answer 204."""
    await request.body()
    return Response(status_code=204)


async def main(certificate: Path, key: Path, stock: bool, known: Sequence[str]) -> None:
    """Serve until SIGTERM; print the port when it listens."""
    app = Starlette(routes=[Route("/webhooks/{rest:path}", take, methods=["POST"])])
    if stock:
        await serve_stock(app, certificate, key)
        return
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = Listener(
        app,
        sock,
        name="noop",
        noise=RejectedTraffic(),
        now=wall,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        max_connections=MAX_CONNECTIONS,
        gate=Gate(lambda: known, clock=monotonic),
        tls=context,
    )
    listener.start()
    print(port, flush=True)
    await stop.wait()
    await listener.close(1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--key", type=Path, required=True)
    parser.add_argument("--stock", action="store_true")
    parser.add_argument("--known", nargs="+", default=["127.0.0.1"], help="addresses that are no strangers'")
    given = parser.parse_args()
    asyncio.run(main(given.certificate, given.key, given.stock, given.known))
