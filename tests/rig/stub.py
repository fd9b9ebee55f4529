"""A small real HTTP server on a Unix socket in place of the daemon. It replies by script, for faults that a daemon
rarely has.
"""

import contextlib
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from types import TracebackType
from typing import Self


@dataclass(frozen=True)
class Call:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    """Response to send. With `cut` the stub closes the connection without a response."""

    status: int = 200
    body: bytes = b"{}"
    content_type: str = "application/json"
    cut: bool = False
    before: Callable[[], object] | None = None


def problem(status: int, code: str, detail: str, extra: str = "") -> Answer:
    """Return a problem response in posd's form."""
    body = f'{{"type":"urn:posd:problem:{code}","status":{status},"code":"{code}","detail":"{detail}"{extra}}}'
    return Answer(status, body.encode(), "application/problem+json")


#: Beginning of a call for a print job under the id of the examples' payment. The stub replies 404 by itself.
PRINT_JOB_QUESTION = ("GET", "/v1/print-jobs/7f3c")


@dataclass
class Stub:
    """Server that replies with the items of `script` in order, as a context manager. The server records calls in
    `calls`.
    """

    socket: Path
    script: list[Answer]
    calls: list[Call] = field(default_factory=list)

    def __enter__(self) -> Self:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = {k.lower(): v for k, v in self.headers.items()}
                if (self.command, self.path[:19]) == PRINT_JOB_QUESTION:
                    answer = problem(404, "not_found", "there is no such print job")
                else:
                    stub.calls.append(Call(self.command, self.path, headers, body))
                    answer = stub.script.pop(0)
                if answer.before is not None:
                    answer.before()
                self.close_connection = True
                if answer.cut:
                    return
                with contextlib.suppress(BrokenPipeError):  # the command did not wait for the response
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.content_type)
                    self.send_header("Connection", "close")
                    self.end_headers()
                    self.wfile.write(answer.body)

            do_GET = do_PUT = do_POST = handle_any  # noqa: N815 - the base class defines this name

            def log_message(self, *args: object) -> None:
                pass

        self.socket.unlink(missing_ok=True)
        self._server = ThreadingUnixStreamServer(str(self.socket), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
