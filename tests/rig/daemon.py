"""A real posd process in a directory of its own, with functions to start, call, kill and restart it."""

import asyncio
import fcntl
import json
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posd.tls import issue
from tests.rig import forks
from tests.rig.described import described
from tests.rig.events import APPROVED, body
from tests.rig.faketime import remove_shared_memory
from tests.rig.home import Home
from tests.rig.https import deliver
from tests.rig.leftovers import OWNER, owner
from tests.rig.ports import reserve
from tests.rig.program import NOT_JSON, Output
from tests.rig.streams import Reply, call, stream

#: Listen address of the webhooks in a test's configuration. The first start replaces port 0 by the real port.
ANY_PORT = "127.0.0.1:0"

#: Limit in seconds until a daemon reports its start. A start takes about half a second.
START_SECONDS = 60.0

#: Log events that are a fault in every test.
FAULTS = ("posd.internal_error", NOT_JSON, "not printable")


@dataclass
class Daemon(Home, Output):
    """One posd with its files. `config`: the configuration as TOML."""

    directory: Path
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    #: Prefix of the daemon's command line, such as a command that enters a network namespace.
    entering: tuple[str, ...] = ()
    #: Module that runs posd, and the arguments of the module before posd's own.
    program: tuple[str, ...] = ("posd",)
    #: Descriptors that the daemon inherits.
    passing: tuple[int, ...] = ()
    #: Descriptor to which the daemon logs. Without a descriptor, the log is in `lines`.
    log_to: int | None = None
    process: forks.Process | asyncio.subprocess.Process | None = None
    port: int = 0
    #: Owner of the process (see `tests.rig.leftovers`). The owner stays if another test starts the process again.
    _owner: str = field(default_factory=owner)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def faults(self) -> list[dict[str, Any]]:
        """Log lines about a fault of posd itself."""
        return [line for line in self.lines if line["event"] in FAULTS]

    async def start(self, *, wait: bool = True) -> None:
        """Start the process. With `wait`, wait until the daemon reports its start. Raise AssertionError with the log if
        the daemon reports no start.
        """
        assert self.process is None
        if ANY_PORT in self.config:  # this daemon keeps its port after a kill
            self.config = self.config.replace(ANY_PORT, f"127.0.0.1:{reserve()}")
        self.config_file.write_text(self.config)
        self.lines.clear()
        module, *first = self.program
        arguments = (*first, "--config", str(self.config_file), "run")
        environment = os.environ | {OWNER: self._owner} | dict(self.environment)
        stdout = asyncio.subprocess.PIPE if self.log_to is None else self.log_to
        self.process = await forks.start(
            *arguments,
            program=module,
            env=environment,
            stdout=stdout,
            stderr=asyncio.subprocess.STDOUT,
            entering=self.entering,
            passing=self.passing,
        )
        if self.log_to is None:
            self.read(self.process.stdout)
        if wait:
            started = await self.log_line("posd.started")
            self.port = int(started["listen"].rsplit(":", 1)[1])

    def add(self, raw: bytes) -> None:
        super().add(raw)
        text = raw.decode("utf-8", "replace")
        if not text.isprintable():
            self.lines.append({"event": "not printable", "text": text})

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Shrink the pipe of the log, and do not read the pipe during the block."""
        transport = self.process.stdout._transport  # type: ignore[attr-defined]
        with suppress(OSError):  # the pipe already has unread lines
            fcntl.fcntl(transport.get_extra_info("pipe").fileno(), fcntl.F_SETPIPE_SZ, 4096)
        transport.pause_reading()
        try:
            yield
        finally:
            transport.resume_reading()

    async def ended(self) -> int:
        """Wait until the process has ended after a signal of the test. Return the exit code. A second SIGTERM would
        kill a posd that has removed its signal handlers.
        """
        code = await self.process.wait()
        await self.whole()
        remove_shared_memory(self.process.pid)
        self.process = None
        return code

    async def kill(self) -> None:
        await self.stop(signal.SIGKILL)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End the process if it runs."""
        if self.process is not None:
            await self.stop(number)

    async def restart(self) -> None:
        """Kill the process and start it on the same port. With the same port, the callback URLs of open payments stay
        valid."""
        await self.kill()
        await self.start()

    async def cannot_start(self) -> tuple[int, str]:
        """Start the process and wait for its end. Return the exit code and the whole output."""
        await self.start(wait=False)
        async with asyncio.timeout(START_SECONDS):
            await self.process.wait()
        code = await self.stop()
        return code, "\n".join(line.get("error") or line.get("text") or "" for line in self.lines)

    async def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        base: str = "/v1",
        socket: Path | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Call the local API (`path` below `base`). A body that is not bytes is sent as JSON.

        Raise AssertionError if the response differs from the description of the API.
        """
        reply = await call(socket or self.till_socket, method, path, body, base=base, headers=headers)
        described().hold(method, f"{base}{path}", reply.status, reply.headers.get("content-type", ""), reply.body)
        return reply

    async def metrics(self, socket: Path | None = None) -> str:
        """Return the daemon's metrics from a socket."""
        return (await self.call("GET", "/metrics", base="", socket=socket)).body.decode()

    async def transaction(self, identity: str) -> Any:
        return (await self.call("GET", f"/transactions/{identity}")).json

    async def outcome(self, identity: str, timeout: float = 60) -> Any:
        """Wait for the outcome. Return None if the wait times out."""
        reply = await self.call("GET", f"/transactions/{identity}/outcome?timeout={timeout}")
        return reply.json if reply.status == 200 else None

    async def approve(self, callback: str, identity: str, serial: str = "SN-TEST") -> None:
        """Deliver all events of an approved payment."""
        for status, previous in APPROVED:
            assert await deliver(callback, body(identity, status, previous, serial), self.ca) == 200

    async def wait_for(self, identity: str, what: Any, timeout: float = 60, kind: str = "transactions") -> Any:
        """Follow the feed until `what(transaction)` is true. Return the transaction."""
        async with asyncio.timeout(timeout):
            async for _ in self.changes():
                document = (await self.call("GET", f"/{kind}/{identity}")).json
                if what(document):
                    return document
        raise AssertionError("the feed ended")

    async def feed(self, query: str = "") -> list[Any]:
        """Return the whole feed."""
        found: list[Any] = []
        after = 0
        while True:
            page = json.loads((await self.call("GET", f"/feed?after={after}&limit=500{query}")).body)
            if not page["changes"]:
                return found
            found += page["changes"]
            after = page["next_after"]

    async def changes(self) -> AsyncIterator[Any]:
        """Yield once at the beginning, and then after each change of any record (the feed as a stream)."""
        yield None
        async with stream(self.till_socket, "/feed") as messages:
            async for message in messages:
                if "seq" in (document := json.loads(message.data)):  # other messages report the end of the stream
                    yield document


def toml(directory: Path, terminals: str, extra: str = "", discovery: str = "enabled = false") -> str:
    """Return a configuration for tests, with one directory, loopback, any free port, and no mDNS."""
    return f"""
[local_api]
directory = "{directory}/run"
till_group = ""
admin_group = ""
[webhooks]
listen = "127.0.0.1:0"
[database]
path = "{directory}/state/posd.db"
[discovery]
{discovery}
{extra}
{terminals}
"""


@asynccontextmanager
async def living(
    daemon: Daemon, addresses: Sequence[str] = ("127.0.0.1",), *, start: bool = True
) -> AsyncIterator[None]:
    """Run a created daemon for the block, with a certificate for these addresses. Check at the end that the log has no
    internal errors. Without `start` the test starts the daemon itself.
    """
    issue.init(daemon.directory / "state" / "tls", names=["localhost"], addresses=addresses)
    try:
        if start:
            await daemon.start()
        yield
    finally:
        await daemon.end()
    assert not daemon.faults, daemon.faults


@asynccontextmanager
async def running(
    directory: Path,
    terminals: str,
    extra: str = "",
    discovery: str = "enabled = false",
    environment: Mapping[str, str] | None = None,
    entering: tuple[str, ...] = (),
    program: tuple[str, ...] = ("posd",),
) -> AsyncIterator[Daemon]:
    """Run a daemon for the block. Check at the end that the log has no internal errors."""
    daemon = Daemon(directory, toml(directory, terminals, extra, discovery), environment or {}, entering, program)
    async with living(daemon):
        yield daemon
