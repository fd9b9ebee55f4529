"""The ways to the metrics: a call of the local API, a listener on this machine's loopback address, a text file."""

import asyncio
import ipaddress
import os
from contextlib import suppress
from pathlib import Path

import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, HTTPScope, Scope
from starlette.requests import Request
from starlette.responses import Response

from posd.api.metrics.text import CONTENT_TYPE
from posd.config.schema import MetricsConfig
from posd.daemon import sockets
from posd.daemon.metrics import Metrics
from posd.httpd import bodies
from posd.httpd.rejected_traffic import RejectedTraffic
from posd.httpd.server import Listener

#: Connections to the loopback listener: Prometheus has one.
MAX_CONNECTIONS = 8
#: How long a connection may say nothing, in seconds; after an answer it is closed.
KEEP_ALIVE_SECONDS = 10.0

_TEXT = (b"content-type", b"text/plain; charset=utf-8")

log = structlog.get_logger("posd.metrics")


class MetricsCalls:
    """The handler of /metrics on the sockets."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def get_metrics(self, _request: Request) -> Response:
        """`GET /metrics`."""
        return Response(await self._metrics.text(), headers={"content-type": CONTENT_TYPE})


def listeners(config: MetricsConfig, metrics: Metrics, noise: RejectedTraffic) -> list[Listener]:
    """Return the loopback listener, bound, where the configuration wants one. Raise SocketError."""
    if config.listen is None:
        return []
    sock = sockets.tcp_socket(config.listen.host, config.listen.port, "metrics.listen")
    app = MetricsApp(metrics)
    return [
        Listener(
            app,
            sock,
            name="metrics",
            noise=noise,
            keep_alive_seconds=KEEP_ALIVE_SECONDS,
            max_connections=MAX_CONNECTIONS,
        )
    ]


def textfile(config: MetricsConfig, metrics: Metrics) -> "Textfile | None":
    """Return what writes the text file, where the configuration wants one."""
    return Textfile(metrics, config.textfile, config.textfile_seconds) if config.textfile is not None else None


class MetricsApp:
    """ASGI app of the loopback listener: nothing but GET /metrics.

    The host that a request names has to be this machine: a web page, opened on it, must not read the metrics by a name
    of its own that leads here.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        refused = _refusal(scope)
        if refused is not None:
            status, words, headers = refused
            await bodies.answer_early(receive, send, status, f"{words}\n".encode(), (_TEXT, *headers))
            return
        try:
            status, text, kind = 200, (await self._metrics.text()).encode(), CONTENT_TYPE.encode()
        except Exception:
            log.exception("metrics.failed")
            status, text, kind = 500, b"posd failed; its log says how\n", _TEXT[1]
        await bodies.answer_early(receive, send, status, text, ((b"content-type", kind),))


def _refusal(scope: HTTPScope) -> tuple[int, str, tuple[tuple[bytes, bytes], ...]] | None:
    """Return status, words and headers where a request is not for the metrics."""
    host = dict(scope["headers"]).get(b"host")
    if host is not None and not _is_here(host.decode("latin-1")):
        return 421, "call this listener by its loopback address, as in http://127.0.0.1:9464/metrics", ()
    if scope["path"] != "/metrics":
        return 404, "there is nothing here but /metrics", ()
    if scope["method"] != "GET":
        return 405, "only GET is possible", ((b"allow", b"GET"),)
    return None


def _is_here(host: str) -> bool:
    """Whether a Host header names this machine: a loopback address or localhost, with any port."""
    name = host[1:].partition("]")[0] if host.startswith("[") else host.rpartition(":")[0] or host
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


class Textfile:
    """Rewrites a file for node_exporter. Run `run` as a task; cancel it to stop.

    Under another name, then renamed: a reader finds the old text or the new one, whole. node_exporter reads `*.prom`
    only, and runs as a user of its own.
    """

    def __init__(self, metrics: Metrics, path: Path, seconds: float) -> None:
        self._metrics = metrics
        self._path = path
        self._seconds = seconds
        self._failing = False

    async def run(self) -> None:
        """Write it now and then, until cancelled. A failure is told once, until it goes again."""
        while True:
            text = await self._metrics.text()
            try:
                replace(self._path, text)
            except OSError as error:
                if not self._failing:
                    detail = "the directory has to be there, and writable for posd; it is tried again all the time"
                    reason = f"cannot write {self._path} ({error.strerror or error})"
                    log.warning("metrics.not_written", error=reason, detail=detail)
                self._failing = True
            else:
                if self._failing:
                    log.info("metrics.written", detail=str(self._path))
                self._failing = False
            await asyncio.sleep(self._seconds)


def replace(path: Path, text: str) -> None:
    """Replace a file as a whole, readable for all. Raise OSError."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise
