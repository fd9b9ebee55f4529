"""The yardstick: a Starlette app with one route that reads the body and answers 204, as a process of its own.

It runs on posd's own listener, or with `--stock` on Hypercorn's own `serve`, with the same settings and certificate.
"""

import argparse
import asyncio
import signal
import socket
import ssl
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from hypercorn.asyncio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from posd import tls
from posd.base.clocks import monotonic, wall
from posd.httpd.admission import AdmissionGate, RejectedTraffic
from posd.httpd.connection import http_config
from posd.httpd.server import HttpListener
from tests.bench.load import Server
from tests.bench.processes import ROOT, environment
from tests.support.daemon import START_SECONDS

#: As the daemon has them.
MAX_CONNECTIONS = 512
KEEP_ALIVE_SECONDS = 15.0


@asynccontextmanager
async def serving(directory: Path, *arguments: str) -> AsyncIterator[Server]:
    """Run it for the block, with a certificate in that directory."""
    made = tls.init(directory / "tls", names=["localhost"], addresses=["127.0.0.1"])
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.noop", str(made.certificate), str(made.private_key), *arguments),
        stdout=asyncio.subprocess.PIPE,
        env=environment(),
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        yield Server(process.pid, int(line), made.ca_certificate)
    finally:
        process.terminate()
        await process.wait()


async def take(request: Request) -> Response:
    """Read the body, answer 204."""
    await request.body()
    return Response(status_code=204)


async def main(certificate: Path, key: Path, stock: bool) -> None:
    """Serve until SIGTERM; print the port when it listens."""
    app = Starlette(routes=[Route("/webhooks/{rest:path}", take, methods=["POST"])])
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    sock = socket.create_server(("127.0.0.1", 0))
    port = sock.getsockname()[1]
    if stock:
        config = http_config(KEEP_ALIVE_SECONDS)
        config.keep_alive_max_requests = 2**31  # it would close after a thousand, which posd does not
        config.certfile, config.keyfile, config.alpn_protocols = str(certificate), str(key), ["http/1.1"]
        config.bind = [f"fd://{sock.detach()}"]
        print(port, flush=True)
        await serve(app, config, shutdown_trigger=stop.wait)  # type: ignore[arg-type]
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = HttpListener(
        app,  # type: ignore[arg-type]
        sock,
        name="noop",
        noise=RejectedTraffic(),
        now=wall,
        keep_alive_seconds=KEEP_ALIVE_SECONDS,
        max_connections=MAX_CONNECTIONS,
        gate=AdmissionGate(lambda: ["127.0.0.1"], clock=monotonic),
        tls=context,
    )
    listener.start()
    print(port, flush=True)
    await stop.wait()
    await listener.close(1.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("certificate", type=Path)
    parser.add_argument("key", type=Path)
    parser.add_argument("--stock", action="store_true")
    given = parser.parse_args()
    asyncio.run(main(given.certificate, given.key, given.stock))
