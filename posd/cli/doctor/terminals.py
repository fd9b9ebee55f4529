"""Each terminal: address, TCP, TLS with the configured trust, HTTP.

Which request is harmless? The terminal API shows none that is. A GET is not: abort is one by default, and the
configuration may put any path of the profile anywhere. So posd sends `OPTIONS /`: the method is safe by HTTP's own
rules (RFC 9110, 9.3.7), and none of the profile's rows can have it, so that no terminal takes it for a payment or an
abort. Any reply, an error too, shows that HTTP is spoken there; its Date header shows the terminal's clock.
No credential goes with it.
"""

import asyncio
import email.utils
import shlex
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote, urlsplit

from posd.base import tls_contexts
from posd.cli.doctor import certificate as judging
from posd.cli.doctor.context import CheckStatus, DoctorContext, Findings, SubjectFinding, failure, ok, warning
from posd.config import TerminalConfig
from posd.terminals import trust

#: Terminals that are called at once.
AT_ONCE = 16
#: How long an answer may take, in seconds; a terminal answers this at once, and its configured time is for payments.
REPLY_SECONDS = 10.0
#: Bytes of the head of an answer that are read.
MAX_HEAD_BYTES = 16 * 1024
#: Ports by convention, for the advice.
PORTS = "6869 for HTTPS, 6868 for HTTP"
SAME_ADDRESS = "Is it still this terminal's address?"


@dataclass(frozen=True, slots=True)
class CallProgress:
    """How far a call came: `said` is what to tell, `ahead` how many seconds the terminal's clock is ahead of ours."""

    said: SubjectFinding
    ahead: float | None = None


def check(shop: DoctorContext) -> Findings:
    """Tell of each terminal how far a call comes; keep what its clock says."""
    found = asyncio.run(_all(shop))
    documents = {item["serial"]: item for item in shop.running.terminals}
    for terminal in shop.terminals:
        reached = found[terminal.serial]
        if reached.ahead is not None:
            shop.clocks[terminal.serial] = reached.ahead
        yield reached.said
        yield from _of_daemon(shop, terminal.serial, reached.said, documents.get(terminal.serial, {}))


def _of_daemon(shop: DoctorContext, serial: str, said: SubjectFinding, document: Mapping[str, object]) -> Findings:
    """Tell where posd has another experience with the terminal than we have now."""
    if said.todo == "" and document.get("reachable") is False and (reason := document.get("reason")):
        yield warning(
            serial,
            f"it answers now; posd could not reach it at its last call ({reason})",
            "watch it",
            shop.command("terminals"),
        )


async def _all(shop: DoctorContext) -> dict[str, CallProgress]:
    turns = asyncio.Semaphore(AT_ONCE)

    async def one(terminal: TerminalConfig) -> CallProgress:
        async with turns:
            return await _reach(shop, terminal)

    serials = [terminal.serial for terminal in shop.terminals]
    return dict(zip(serials, await asyncio.gather(*map(one, shop.terminals)), strict=True))


async def _reach(shop: DoctorContext, terminal: TerminalConfig) -> CallProgress:
    serial = terminal.serial
    address = shop.addresses.get(serial)
    if address is None:
        return CallProgress(_no_address(shop, terminal))
    at = f"{address.base_url} ({SOURCES[address.source]})"
    parts = urlsplit(address.base_url)
    host, port = unquote(parts.hostname or ""), parts.port or (443 if parts.scheme == "https" else 80)
    context = None
    if parts.scheme == "https":
        try:
            context = trust.context(terminal.ca_file, terminal.pin, system=terminal.trusts_system)
        except OSError as error:
            return CallProgress(_no_trust(shop, serial, at, str(error)))
    try:
        reader, writer = await asyncio.wait_for(
            _connect(host, port, context, trust.called(address.base_url, terminal.server_name)),
            terminal.connect_timeout_seconds,
        )
    except ssl.SSLError as error:
        return CallProgress(await _refused(shop, terminal, at, address.base_url, error))
    except (OSError, TimeoutError) as error:
        return CallProgress(_unreachable(shop, terminal, at, host, error))
    try:
        reached = await _speak(shop, terminal, at, parts.netloc, reader, writer, context is not None)
        if reached.said.status is CheckStatus.OK and context is not None and terminal.pin is None:
            return await _strictly(shop, terminal, host, port, reached)
        return reached
    finally:
        with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where it is closed
            writer.transport.abort()


#: where an address comes from -> words
SOURCES = {"config": "from the configuration", "mdns": "found by mDNS"}


async def _strictly(
    shop: DoctorContext, terminal: TerminalConfig, host: str, port: int, reached: CallProgress
) -> CallProgress:
    """Verify once more, by strict rules, a terminal that is trusted; tell where they refuse it."""
    strict = tls_contexts.strict_client(terminal.ca_file, system=terminal.trusts_system)
    name = terminal.server_name or host.partition("%")[0]
    try:
        async with asyncio.timeout(terminal.connect_timeout_seconds):
            _, writer = await _connect(host, port, strict, name)
    except ssl.SSLCertVerificationError as error:
        said = warning(
            terminal.serial,
            f"{reached.said.meaning}; strict rules (RFC 5280, the default of Python 3.13) refuse its chain: "
            f"{judging.words(error)}. posd goes on trusting it",
            "other programs may refuse it after an upgrade; have its CA issue a right chain, or pin the certificate",
            shop.command("terminals", "pin", terminal.serial),
        )
        return CallProgress(said, reached.ahead)
    except (OSError, TimeoutError):
        return reached
    with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a TLS transport fails so where it is closed
        writer.transport.abort()
    return reached


async def _connect(
    host: str, port: int, context: ssl.SSLContext | None, name: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(
        host, port, limit=MAX_HEAD_BYTES, ssl=context, server_hostname=name if context else None
    )


def _no_address(shop: DoctorContext, terminal: TerminalConfig) -> SubjectFinding:
    add = 'write base_url = "https://ADDRESS:6869" into its section'
    if shop.settings.discovery.enabled:
        why = "it does not announce itself over mDNS"
        todo = (
            "is it switched on, and in this network? Is this its serial, as printed on it? If mDNS does not work in "
            f"this network, {add}"
        )
    else:
        why, todo = "discovery is switched off", f"{add}, or set discovery.enabled = true"
    meaning = f"no address is known: the configuration has none, and {why}"
    edit = shop.edit_terminal(terminal.serial, "base_url")
    return failure(terminal.serial, meaning, todo, shop.command("terminals", "--all"), edit)


def _no_trust(shop: DoctorContext, serial: str, at: str, reason: str) -> SubjectFinding:
    todo = "see the configuration: terminals.ca_file"
    if any(item.check == "configuration" and "ca_file" in item.subject for item in shop.found):
        return warning(
            serial, f"{at}: not called, because its CA file cannot be used", todo, shop.edit_terminal(serial, "ca_file")
        )
    return failure(serial, f"{at}: cannot be called: {reason}", todo, shop.edit_terminal(serial, "ca_file"))


def _unreachable(shop: DoctorContext, terminal: TerminalConfig, at: str, host: str, error: Exception) -> SubjectFinding:
    look = shop.command("terminals", "--all")
    match error:
        case socket.gaierror():
            meaning, todo = "this name is not known", "correct base_url, or the DNS of this network"
            look = shlex.join(("getent", "hosts", host))
        case ConnectionRefusedError():
            meaning = "a device is there, and nobody listens on this port"
            todo = f"is the payment application running on the terminal? Is the port right ({PORTS})? {SAME_ADDRESS}"
        case TimeoutError():
            meaning = f"no answer within {terminal.connect_timeout_seconds:g} s"
            todo = (
                "is it switched on, awake, and in the same network as this machine? Does the network keep devices "
                f"apart (client isolation)? {SAME_ADDRESS}"
            )
        case _:
            meaning = f"cannot be reached ({getattr(error, 'strerror', None) or str(error) or type(error).__name__})"
            todo = f"is it switched on, and is this machine in the same network? {SAME_ADDRESS}"
    return failure(terminal.serial, f"{at}: {meaning}", todo, look, shop.edit_terminal(terminal.serial, "base_url"))


async def _refused(
    shop: DoctorContext, terminal: TerminalConfig, at: str, base_url: str, error: ssl.SSLError
) -> SubjectFinding:
    """Tell why TLS failed, and what certificate was found in place of the expected one."""
    serial = terminal.serial
    if not isinstance(error, ssl.SSLCertVerificationError):
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            meaning = f"{at}: something answers there, but not over TLS"
            return failure(
                serial,
                meaning,
                f"is the port right ({PORTS})?",
                shop.command("terminals", "--all"),
                shop.edit_terminal(serial, "base_url"),
            )
        return failure(
            serial,
            f"{at}: TLS fails ({judging.words(error)})",
            "does the terminal speak TLS 1.2 or newer? Does it want a certificate of its callers?",
            shop.command("terminals", "pin", serial),
        )
    shown = None
    with suppress(OSError, ValueError, TimeoutError):
        async with asyncio.timeout(terminal.connect_timeout_seconds):
            shown = await trust.shown(base_url, terminal.server_name)
    expected = trust.called(base_url, terminal.server_name)
    system, now = terminal.trusts_system, datetime.now(UTC)
    reason = trust.words(error, shown, expected, terminal.ca_file, now, system=system)
    return failure(
        serial,
        f"{at}: {reason}",
        "is it this terminal? Compare the certificate with the terminal's own display; until it is trusted no payment "
        "is sent to it",
        shop.command("terminals", "pin", serial),
    )


async def _speak(
    shop: DoctorContext,
    terminal: TerminalConfig,
    at: str,
    netloc: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    tls: bool,
) -> CallProgress:
    """Send the harmless request and read the head of what comes back."""
    sent, serial = time.time(), terminal.serial
    try:
        writer.write(f"OPTIONS / HTTP/1.1\r\nhost: {netloc}\r\nuser-agent: posd\r\nconnection: close\r\n\r\n".encode())
        async with asyncio.timeout(REPLY_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
    except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        silent = f"no answer to a request within {REPLY_SECONDS:g} s"
        how = silent if isinstance(error, TimeoutError) else "it closes the connection without an answer"
        said = warning(
            serial,
            f"{at}: {'TLS' if tls else 'the connection'} works, and {how} (OPTIONS /, which starts nothing)",
            "some devices answer only what they know; make a small payment and see. If that fails too, restart the "
            "payment application on the terminal",
            shop.command("terminals"),
        )
        return CallProgress(said)
    received = time.time()
    line, _, rest = head.partition(b"\r\n")
    if not line.startswith(b"HTTP/1."):
        meaning, todo = f"{at}: what answers there does not speak HTTP", f"is the port right ({PORTS})?"
        said = failure(
            serial, meaning, todo, shop.command("terminals", "--all"), shop.edit_terminal(serial, "base_url")
        )
        return CallProgress(said)
    answer = f"{at}: it answers over {'TLS, with a certificate that is trusted' if tls else 'HTTP, without TLS'}"
    return CallProgress(ok(serial, answer), _ahead(rest, (sent + received) / 2))


def _ahead(head: bytes, now: float) -> float | None:
    """Return by how many seconds the Date header is ahead of `now`; it has whole seconds. None without one."""
    for line in head.decode("latin-1").split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "date":
            with suppress(ValueError, TypeError, OverflowError):
                date = email.utils.parsedate_to_datetime(value.strip())
                return date.replace(tzinfo=date.tzinfo or UTC).timestamp() + 0.5 - now
    return None
