"""The listener's certificate. posd renews the certificate automatically, and loads the new file without a restart or a
lost webhook. Certificate and key always match.
"""

import asyncio
import hashlib
import os
import pty
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from posd.tls import issue
from posd.tls.files import TlsFiles, describe, files_in
from tests.rig import forks
from tests.rig.daemon import Daemon, toml
from tests.rig.events import body
from tests.rig.https import connect, post
from tests.rig.leftovers import OWNER, owner
from tests.rig.shop import AMOUNT
from tests.rig.tables import there
from tests.rig.terminal import ScriptedTerminal

DAY = timedelta(days=1)
#: Number of webhooks that must arrive with each certificate before the next certificate is made.
ENOUGH = 12


def files(posd: Daemon) -> TlsFiles:
    return files_in(posd.directory / "state" / "tls")


async def shown(posd: Daemon) -> str:
    """Return the fingerprint of the certificate that a new connection gets."""
    _, writer = await connect(posd.port, posd.ca)
    writer.close()
    return fingerprint(writer)


def fingerprint(writer: asyncio.StreamWriter) -> str:
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    return hashlib.sha256(certificate).hexdigest()


async def reloaded(posd: Daemon, event: str) -> dict[str, Any]:
    """Send SIGHUP and wait for the log line with the result."""
    lines = len(posd.lines)
    there(posd.process).send_signal(signal.SIGHUP)
    return await posd.log_line(event, after=lines)


async def check(posd: Daemon) -> dict[str, Any]:
    """Return the health check of the certificate."""
    return dict((await posd.call("GET", "/health")).json["checks"]["certificate"])


async def command(posd: Daemon, *arguments: str) -> tuple[int, str]:
    """Run `posd tls` beside the daemon. Return exit code and output."""
    process = await forks.start(
        *("--config", str(posd.config_file), "tls", *arguments),
        stderr=asyncio.subprocess.STDOUT,
        env={name: value for name, value in os.environ.items() if not name.startswith("POSD_")} | {OWNER: owner()},
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


class Terminals:
    """Terminals that deliver webhooks without pause. Most terminals use a new connection for each webhook."""

    def __init__(self, posd: Daemon, callback: str, content: bytes) -> None:
        self._posd = posd
        self._request = post(callback, content)
        self._kept = self._request.replace(b"connection: close\r\n", b"")
        self.delivered: list[tuple[str, int]] = []
        self._news = asyncio.Event()
        self._done = False

    async def fresh(self) -> None:
        """Connect, deliver and disconnect repeatedly."""
        while not self._done:
            reader, writer = await connect(self._posd.port, self._posd.ca)
            await self._deliver(reader, writer, self._request)
            assert await reader.read() == b""
            writer.close()

    async def kept(self) -> None:
        """Deliver over one connection while the certificate changes."""
        reader, writer = await connect(self._posd.port, self._posd.ca)
        while not self._done:
            await self._deliver(reader, writer, self._kept)
        writer.close()

    async def _deliver(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line.split(":")[1]) for line in head.split("\r\n") if line.startswith("content-length"))
        await reader.readexactly(length)
        self.delivered.append((fingerprint(writer), int(head.split(" ")[1])))
        self._news.set()

    async def under(self, certificate: str) -> None:
        """Wait until enough webhooks were delivered with this certificate."""
        while sum(shown == certificate for shown, _ in self.delivered) < ENOUGH:
            self._news.clear()
            await self._news.wait()

    def stop(self) -> None:
        self._done = True


@pytest.mark.slow
async def test_no_webhook_fails_while_certificates_are_renewed(
    posd: Daemon, terminal: ScriptedTerminal, identity: str, tell: Callable[[str], None]
) -> None:
    await posd.call("PUT", f"/transactions/{identity}", {"amount": AMOUNT})
    event = body(identity, "CARD_PRESENTED", "TERMINAL_ACKNOWLEDGED", terminal.serial)
    terminals = Terminals(posd, terminal.requests[0].callback, event)
    certificates = [describe(files(posd).certificate).fingerprint_sha256]
    async with asyncio.timeout(100), asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(terminals.fresh())
        group.create_task(terminals.kept())
        await terminals.under(certificates[0])
        for by_command in (True, False, True):
            lines = len(posd.lines)
            if by_command:
                code, said = await command(posd, "renew")
                assert (code, "posd serves it now" in said) == (0, True), said
            else:
                await asyncio.to_thread(issue.renew, files(posd).certificate.parent)
                there(posd.process).send_signal(signal.SIGHUP)
            certificates.append(describe(files(posd).certificate).fingerprint_sha256)
            await posd.log_line("certificate.loaded", after=lines, fingerprint_sha256=certificates[-1])
            await terminals.under(certificates[-1])
        terminals.stop()
    assert len(set(certificates)) == 4
    assert {certificate for certificate, _ in terminals.delivered} == set(certificates)
    assert {status for _, status in terminals.delivered} == {200}
    tell(f"{len(terminals.delivered)} webhooks were delivered while the certificate was renewed 3 times, none failed")


@pytest.fixture
def short_lived(monkeypatch: pytest.MonkeyPatch) -> Callable[[timedelta, timedelta], None]:
    """Return a function that sets the lifetime of the CA and of the server certificate."""

    def set_to(server: timedelta, ca: timedelta = issue.CA_LIFETIME) -> None:
        monkeypatch.setattr(issue, "SERVER_LIFETIME", server)
        monkeypatch.setattr(issue, "CA_LIFETIME", ca)

    return set_to


@asynccontextmanager
async def started(home: Path) -> AsyncIterator[Daemon]:
    """Run a daemon with the existing certificates."""
    daemon = Daemon(home, toml(home, ""))
    await daemon.start()
    try:
        yield daemon
    finally:
        await daemon.stop()


def make(home: Path) -> TlsFiles:
    return issue.init(home / "state" / "tls", names=["localhost"], addresses=["127.0.0.1"])


async def test_the_certificate_is_renewed_before_its_end(home: Path, short_lived: Callable[..., None]) -> None:
    short_lived(21 * DAY)
    before = describe(make(home).certificate)
    async with started(home) as daemon:
        assert "ends in 19 days" in (await daemon.log_line("certificate.renewed"))["detail"]
        line = await daemon.log_line("certificate.loaded")
        assert line["fingerprint_sha256"] == await shown(daemon) != before.fingerprint_sha256
        health = await check(daemon)
        assert (health["status"], health["served"]["port"]) == ("ok", daemon.port)
        assert health["served"]["fingerprint_sha256"] == line["fingerprint_sha256"]


#: Program that makes its stdin the controlling terminal, and then executes posd.
ON_A_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, "-m", "posd", "--config", sys.argv[1], "run"])
"""


async def test_closing_a_terminal_window_ends_the_posd_that_runs_there(home: Path) -> None:
    """SIGHUP means a reload, but the kernel also sends SIGHUP when a terminal window is closed."""
    make(home)
    (home / "config.toml").write_text(toml(home, ""))
    screen, end = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", ON_A_TERMINAL, str(home / "config.toml")),
        stdin=end,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    os.close(end)
    assert process.stdout is not None
    async with asyncio.timeout(60):
        while b"posd.started" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGHUP)
        while b"certificate.loaded" not in await process.stdout.readline():
            pass
        os.close(screen)
        assert b"posd.stopping" in await process.stdout.readline()
        await process.stdout.read()
        assert await process.wait() == 0


@pytest.mark.slow
async def test_terminals_with_the_old_or_the_new_ca_can_connect_during_a_change_of_the_ca(home: Path) -> None:
    made = make(home)
    old = home / "old.crt"
    old.write_bytes(made.ca_certificate.read_bytes())
    async with started(home) as daemon:
        assert (await command(daemon, "renew", "--new-ca"))[0] == 0
        code, said = await command(daemon, "ca")
        new = home / "new.crt"
        new.write_text(said)
        assert (code, new.read_bytes()) == (0, made.next_ca_certificate.read_bytes())
        for ca in (old, new):
            (await connect(daemon.port, ca))[1].close()
        health = await check(daemon)
        assert (health["status"], "a new CA will sign" in health["detail"]) == ("ok", True)
        assert "a new one signs from" in (await command(daemon, "status"))[1]
        code, said = await command(daemon, "renew", "--end-old-ca")
        assert (code, "the new CA signed it" in said) == (0, True)
        (await connect(daemon.port, new))[1].close()
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(daemon.port, old)
        assert "a new CA" not in (await check(daemon))["detail"]
