"""A real posd process with its own directory: start it, talk to it, kill it, start it again."""

import asyncio
import fcntl
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from posd.tls import issue
from tests.support import forks
from tests.support.described import described
from tests.support.faketime import remove_shared_memory
from tests.support.leftovers import OWNER, owner
from tests.support.ports import reserve
from tests.support.streams import Reply, ask, stream

#: Where a configuration for tests lets the webhook listener be: the first start fills a port in.
ANY_PORT = "127.0.0.1:0"

#: Longest that a daemon may take to say that it started, in seconds; it takes about half a second.
START_SECONDS = 60.0
#: Longest that a call may take, in seconds.
CALL_SECONDS = 90.0

#: What no line of a log may be.
FAULTS = ("posd.internal_error", "not json", "not printable")


@dataclass
class Daemon:
    """One posd and everything it owns. `config` is the TOML that it runs with."""

    directory: Path
    config: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    #: A command that runs it, such as one that enters a network namespace and then executes its arguments.
    entering: tuple[str, ...] = ()
    #: Descriptors that it inherits.
    passing: tuple[int, ...] = ()
    #: A descriptor that its log goes to in place of `lines`.
    log_to: int | None = None
    process: forks.Process | asyncio.subprocess.Process | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0
    #: Whose it is, also where another test starts it again; see `tests.support.leftovers`.
    _owner: str = field(default_factory=owner)
    _reading: asyncio.Task[None] | None = None
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def ca(self) -> Path:
        return self.directory / "state" / "tls" / "ca.crt"

    @property
    def till_socket(self) -> Path:
        return self.directory / "run" / "till.sock"

    @property
    def admin_socket(self) -> Path:
        return self.directory / "run" / "admin.sock"

    @property
    def database(self) -> Path:
        return self.directory / "state" / "posd.db"

    @property
    def config_file(self) -> Path:
        return self.directory / "config.toml"

    async def start(self, *, wait: bool = True) -> None:
        """Start the process; with `wait`, until it says that it started (or raise with its log)."""
        assert self.process is None
        if ANY_PORT in self.config:  # a port of its own, for as long as it is killed and started
            self.config = self.config.replace(ANY_PORT, f"127.0.0.1:{reserve()}")
        self.config_file.write_text(self.config)
        self.lines.clear()
        arguments = ("--config", str(self.config_file), "run")
        environment = os.environ | {OWNER: self._owner} | dict(self.environment)
        if self.entering or self.passing:
            self.process = await asyncio.create_subprocess_exec(
                *(*self.entering, sys.executable, "-m", "posd", *arguments),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=environment,
                pass_fds=self.passing,
            )
        else:
            stdout = asyncio.subprocess.PIPE if self.log_to is None else self.log_to
            self.process = await forks.start(
                *arguments, env=environment, stdout=stdout, stderr=asyncio.subprocess.STDOUT
            )
        self._reading = asyncio.create_task(self._read()) if self.log_to is None else None
        if wait:
            started = await self.log_line("posd.started")
            self.port = int(started["listen"].rsplit(":", 1)[1])

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            text = line.decode("utf-8", "replace")
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.lines.append({"event": "not json", "text": text})
            if not text.removesuffix("\n").isprintable():
                self.lines.append({"event": "not printable", "text": text})
            self._news.set()
        self._news.set()

    async def log_line(self, event: str, after: int = 0, **fields: Any) -> dict[str, Any]:
        """Wait for a log line of that event (and fields), from line number `after` on."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                self._news.clear()
                for line in self.lines[after:]:
                    if line.get("event") == event and fields.items() <= line.items():
                        return line
                if self._reading is None or self._reading.done():
                    raise AssertionError(f"posd ended without {event}: {self.lines}")
                await self._news.wait()

    @contextmanager
    def unread(self) -> Iterator[None]:
        """Stop reading its log for the block, after enough lines to fill it."""
        assert self.process is not None
        assert self.process.stdout is not None
        transport = self.process.stdout._transport  # type: ignore[attr-defined]
        with suppress(OSError):  # there is more in it already
            fcntl.fcntl(transport.get_extra_info("pipe").fileno(), fcntl.F_SETPIPE_SZ, 4096)
        transport.pause_reading()
        try:
            yield
        finally:
            transport.resume_reading()

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, wait for the end, return the exit code."""
        assert self.process is not None
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until the process has ended, after a signal that the test sent; return the exit code.

        A second SIGTERM would kill posd once it has removed its signal handlers.
        """
        assert self.process is not None
        code = await self.process.wait()
        if self._reading is not None:
            await self._reading
        remove_shared_memory(self.process.pid)
        self.process = None
        return code

    async def kill(self) -> None:
        """Kill the process."""
        await self.stop(signal.SIGKILL)

    async def restart(self) -> None:
        """Kill it and start it on the same port, so the callback addresses of open payments stay valid."""
        await self.kill()
        await self.start()

    async def cannot_start(self) -> tuple[int, str]:
        """Start it, wait for its end; return the exit code and its whole output."""
        await self.start(wait=False)
        assert self.process is not None
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
        """Call the local API (`path` below `base`); a body that is not bytes is sent as JSON.

        Raise AssertionError if the answer differs from the description of the API.
        """
        content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        sent = ({"content-type": "application/json"} if content is not None else {}) | (headers or {})
        fields = "".join(f"{name}: {value}\r\n" for name, value in sent.items())
        connection = await ask(socket or self.till_socket, path, fields, base=base, method=method, content=content)
        try:
            reply = await connection.answer(CALL_SECONDS)
        finally:
            connection.hang_up()
        described().hold(method, f"{base}{path}", reply.status, reply.headers.get("content-type", ""), reply.body)
        return reply

    async def metrics(self, socket: Path | None = None) -> str:
        """Return its metrics, as a socket serves them."""
        return (await self.call("GET", "/metrics", base="", socket=socket)).body.decode()

    async def transaction(self, identity: str) -> Any:
        """Return a transaction as the local API shows it."""
        return (await self.call("GET", f"/transactions/{identity}")).json

    async def outcome(self, identity: str, timeout: float = 60) -> Any:
        """Wait for the outcome; None if the time-out passed."""
        reply = await self.call("GET", f"/transactions/{identity}/outcome?timeout={timeout}")
        return reply.json if reply.status == 200 else None

    async def wait_for(self, identity: str, what: Any, timeout: float = 60) -> Any:
        """Follow the feed until `what(transaction)` holds; return the transaction."""
        async with asyncio.timeout(timeout):
            async for _ in self.changes():
                document = await self.transaction(identity)
                if what(document):
                    return document
        raise AssertionError("the feed ended")

    async def changes(self) -> AsyncIterator[Any]:
        """Yield once at the beginning, and then at each change of anything (the feed as a stream)."""
        yield None
        async with stream(self.till_socket, "/feed") as messages:
            async for message in messages:
                if "seq" in (document := json.loads(message.data)):  # else how it ends
                    yield document


def toml(directory: Path, terminals: str, extra: str = "", discovery: str = "enabled = false") -> str:
    """Return a configuration for tests: everything in one directory, loopback, any free port, no mDNS."""
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
async def living(daemon: Daemon) -> AsyncIterator[None]:
    """Start a daemon that was made, and stop it after the block; its log must not have internal errors at the end."""
    issue.init(daemon.directory / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])
    await daemon.start()
    try:
        yield
    finally:
        if daemon.process is not None:
            await daemon.stop()
    faults = [line for line in daemon.lines if line["event"] in FAULTS]
    assert not faults, faults


@asynccontextmanager
async def running(
    directory: Path,
    terminals: str,
    extra: str = "",
    discovery: str = "enabled = false",
    environment: Mapping[str, str] | None = None,
    entering: tuple[str, ...] = (),
) -> AsyncIterator[Daemon]:
    """Run a daemon for the block; its log must not have internal errors at the end."""
    daemon = Daemon(directory, toml(directory, terminals, extra, discovery), environment or {}, entering)
    async with living(daemon):
        yield daemon
