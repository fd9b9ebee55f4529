"""Client for terminals. Each call has a new connection, and reports whether any byte of the request was sent.

A kept connection that the terminal has closed would cause many uncertain outcomes. So no connection is kept. The
request is one write (`exchange`). A failure before that write is `NotSent`, and a failure after it is `ReplyLost`.
"""

import asyncio
import functools
import hashlib
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urlsplit

from posd.base.clocks import wall
from posd.base.fair_queue import end_turn
from posd.config import TerminalConfig
from posd.config.values import is_address
from posd.terminals import authentication, trust
from posd.terminals.attempt import (
    Attempt,
    CallFailed,
    NotSent,
    Replied,
    ReplyLost,
    clock_ahead,
    clock_remark,
    with_remark,
)
from posd.terminals.authentication import (
    Authentication,
    OutgoingRequest,
    Verifier,
    authenticate,
)
from posd.terminals.exchange import ClientExchange, HttpAnswer, request_bytes
from posd.terminals.trust import ProbeResult
from posd.tls.certificate import has_serial, server_hostname

#: Seconds after which the next address of a host name is tried too (RFC 8305, section 5).
ATTEMPT_SECONDS = 0.25

#: Headers of every request. The authentication adds others.
HEADERS: Final = MappingProxyType(
    {
        "user-agent": "posd",
        "connection": "close",
        "accept": "application/json",
        "accept-encoding": "identity",  # replies are stored as received, and a compressed reply could not be judged
    }
)

#: Scheme of a URL -> its default port.
_PORTS: Final = MappingProxyType({"http": 80, "https": 443})


#: Longest wait of a probe until the terminal has closed the connection too, in seconds.
GOODBYE_SECONDS = 1.0


def make_clients(
    terminals: Iterable[TerminalConfig],
    now: Callable[[], datetime] = wall,
    clock_sure: Callable[[], bool] = lambda: True,
) -> "dict[str, TerminalAccess]":
    """Read certificates, headers and secrets of each terminal (blocking). Return serial -> client.

    Raise OSError or ConfigError if a file cannot be used.
    """
    contexts = functools.cache(trust.context)  # reading the system's CAs takes long, so read them once
    clients = {}
    for terminal in terminals:
        secure = (terminal.base_url or f"{terminal.scheme}:").lower().startswith("https:")
        context = contexts(terminal.ca_file, terminal.pin, system=secure and terminal.trusts_system)
        scheme, verifier = authentication_of(terminal, now), webhook_verifier(terminal)
        clients[terminal.serial] = TerminalAccess(terminal, context, scheme, verifier, now, clock_sure)
    return clients


def authentication_of(terminal: TerminalConfig, now: Callable[[], datetime]) -> Authentication:
    """Read the secrets of a terminal (blocking), and return its configured authentication.

    Raise ConfigError if a secret cannot be read.
    """
    values = {name: header.resolve() for name, header in terminal.headers.items()}
    beside = authentication.headers(values) if values else authentication.none
    if terminal.auth == "none":
        return beside
    assert terminal.business_code is not None  # noqa: S101 - the configuration is refused without one
    business_code = terminal.business_code.resolve()
    if terminal.auth == "hmac":
        scheme = authentication.hmac_sha256(business_code, lambda: now().timestamp())
    else:
        from posd.terminals.hash_encrypt import hash_encrypt  # imported late: it loads the encryption library

        scheme = hash_encrypt(business_code, terminal.serial, terminal.hash_encrypt, lambda: now().timestamp())
    return lambda request: scheme(beside(request))


def webhook_verifier(terminal: TerminalConfig) -> Verifier | None:
    """Read the secret of a terminal's webhooks (blocking), and return their verifier.

    Return None if no signature is required. Raise ConfigError if the secret cannot be read.
    """
    if not terminal.webhook_signature:
        return None
    assert terminal.secret_of_webhooks is not None  # noqa: S101 - the configuration is refused without one
    return Verifier(terminal.webhook_signature, terminal.secret_of_webhooks.resolve())


@dataclass(eq=False, repr=False)
class TerminalAccess:
    """Configuration of one terminal with its secrets, and the client for its calls.

    `context`: checks the device's certificate. `webhooks`: verifier of webhook signatures, or None if none is required.
    `clock_sure`: returns whether this machine's clock can judge the dates of certificates.
    """

    config: TerminalConfig
    context: ssl.SSLContext
    authentication: Authentication
    webhooks: Verifier | None = None
    now: Callable[[], datetime] = wall
    clock_sure: Callable[[], bool] = lambda: True
    #: Fingerprint of a verified certificate -> whether it has the serial.
    _proving: dict[str, bool] = field(default_factory=dict, init=False)
    #: Whether posd is stopping, so that every call ends at once.
    _hurried: bool = field(default=False, init=False)
    #: Time-outs of the open calls, in the order in which they were set.
    _deadlines: dict[asyncio.Timeout, None] = field(default_factory=dict, init=False)

    @property
    def longest_call(self) -> float:
        """Longest duration of one call, in seconds."""
        return self.config.connect_timeout_seconds + self.config.reply_timeout_seconds

    async def call(
        self,
        method: str,
        url: str,
        body: bytes | None = None,
        written: Callable[[], None] = lambda: None,
        *,
        same_as: str | None = None,
        proven: bool = False,
        connected: Callable[[str | None], None] = lambda _certificate: None,
    ) -> Attempt:
        """Send one request, and return the result. The call ends within `longest_call`.

        `written`: called after the request was passed to the network. `same_as`: SHA-256 fingerprint (hex) that the
        certificate must have. `proven`: whether the certificate must have the serial. If the certificate does not fit,
        nothing is sent. `connected`: called before anything is sent, with the fingerprint of the certificate (None
        without TLS). If it raises CallFailed, nothing is sent.
        """
        end_turn()
        trust.judge_dates(self.context, self.clock_sure())
        writing = False

        def about_to_write(certificate: str | None) -> None:
            nonlocal writing
            connected(certificate)
            if same_as is not None and certificate != same_as:
                raise CallFailed(
                    "the device there is not the one that got the payment: its certificate has fingerprint "
                    f"{certificate or 'none'}, not {same_as}"
                )
            if proven and not self.proves(certificate):
                raise CallFailed(
                    f"the certificate of the device there lacks the serial {self.config.serial}, which the terminal's "
                    f"certificate has (fingerprint of the certificate there: {certificate or 'none'})"
                )
            writing = True

        deadline = asyncio.timeout(0 if self._hurried else self.longest_call)
        try:
            async with deadline:
                self._deadlines[deadline] = None
                return await self._send(method, url, body, about_to_write, written)
        except TimeoutError:
            reason = (
                "posd was stopped before the terminal answered"
                if self._hurried
                else f"no complete reply within {self.longest_call:g} s"
            )
        except Exception as error:  # noqa: BLE001 - every error needs a judgement of the payment
            refused = trust.refusal(error)
            reason = _words(error) if refused is None else await self._explain(refused, url, deadline.when())
        finally:
            self._deadlines.pop(deadline, None)
        return ReplyLost(reason) if writing else NotSent(reason)

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        about_to_write: Callable[[str | None], None],
        written: Callable[[], None],
    ) -> Replied:
        content_type = {} if body is None else {"content-type": "application/json"}
        request = authenticate(OutgoingRequest(method, url, {**HEADERS, **content_type}, body), self.authentication)
        secure, host, port, sent = _destination(request)

        def connected(transport: asyncio.Transport) -> None:
            certificate = None
            if secure:
                certificate = self._seen(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
            about_to_write(certificate)

        exchange = ClientExchange(sent, connected, self.config.reply_timeout_seconds, written)
        try:
            await self._connect(exchange, host, port, secure=secure)
            answer = await exchange.answer()
        finally:
            exchange.close()
        return self._replied(request, answer)

    async def _connect(self, exchange: ClientExchange, host: str, port: int, *, secure: bool) -> None:
        """Connect, including TLS, within the connect time-out. Raise CallFailed with the reason."""
        seconds, name = self.config.connect_timeout_seconds, self.config.server_name or host.partition("%")[0]
        try:
            async with asyncio.timeout(seconds):
                await asyncio.get_running_loop().create_connection(
                    lambda: exchange,
                    host,
                    port,
                    ssl=self.context if secure else None,
                    server_hostname=server_hostname(name) if secure else None,
                    ssl_handshake_timeout=seconds if secure else None,
                    happy_eyeballs_delay=None if is_address(host) else ATTEMPT_SECONDS,
                )
        except TimeoutError:
            raise CallFailed("the connection was not established in time") from None
        except (OSError, ValueError) as error:  # ValueError: an invalid name
            raise CallFailed(f"cannot connect: {trust.why_not(error)}") from error

    def _replied(self, request: OutgoingRequest, answer: HttpAnswer) -> Replied:
        """Return the decrypted reply with a remark about a likely cause of its status."""
        if not answer.complete:
            return Replied(answer.status, answer.body, complete=False)
        remark = ""
        if self.config.auth != "none" and not 200 <= answer.status < 300:
            ahead = clock_ahead(self.now(), answer.date)
            remark = clock_remark(answer.status, ahead, self.config.hash_encrypt.window_seconds)
        if answer.status == HTTPStatus.NOT_FOUND:
            tried = f"{request.method} {urlsplit(request.url).path}"
            remark = with_remark(f"posd called {tried}: check edition, and this row of the profile", remark)
        sealed, body = False, answer.body
        try:
            body = request.opened(body)
        except ValueError as error:
            sealed, remark = True, with_remark(str(error), remark)
        return Replied(answer.status, body, remark=remark, sealed=sealed)

    async def probe(self, base_url: str) -> ProbeResult:
        """Connect as for a call, including TLS. Send no request, and close the connection in an orderly way."""
        trust.judge_dates(self.context, self.clock_sure())
        parts, seconds = urlsplit(base_url), self.config.connect_timeout_seconds
        secure, name = parts.scheme == "https", trust.called(base_url, self.config.server_name)
        try:
            async with asyncio.timeout(0 if self._hurried else seconds):
                _, writer = await asyncio.open_connection(
                    unquote(parts.hostname or ""),  # a scope in a URL is written as %25eth0 (RFC 6874)
                    parts.port or _PORTS[parts.scheme],
                    ssl=self.context if secure else None,
                    server_hostname=server_hostname(name) if secure else None,
                )
        except TimeoutError:
            return ProbeResult(f"no connection within {seconds:g} s: is the terminal switched on and in this network?")
        except ssl.SSLCertVerificationError as error:
            words = await self._explain(error, base_url)
            return ProbeResult(words, refused=True, of_dates=getattr(error, "verify_code", 0) in trust.DATES)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; ValueError: an invalid name
            return ProbeResult(trust.why_not(error))
        connection = writer.get_extra_info("ssl_object")
        certificate = self._seen(connection.getpeercert(binary_form=True)) if connection is not None else None
        writer.close()
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await writer.wait_closed()
        except OSError:  # the device does not reply to the close; a TimeoutError is an OSError
            writer.transport.abort()
        return ProbeResult(certificate=certificate)

    def proves(self, certificate: str | None) -> bool:
        """Return whether a verified certificate has the serial of the terminal. `certificate`: its fingerprint."""
        return certificate is not None and self._proving.get(certificate, False)

    def _seen(self, certificate: bytes | None) -> str | None:
        """Return the fingerprint of a verified certificate. With a configured CA, record whether it has the serial."""
        found = hashlib.sha256(certificate).hexdigest() if certificate else None
        if found is not None and self.config.ca_file is not None and found not in self._proving:
            self._proving[found] = has_serial(certificate or b"", self.config.serial)
        return found

    async def _explain(self, error: ssl.SSLCertVerificationError, url: str, until: float | None = None) -> str:
        """Return why the certificate at an address was refused. A second connection reads the certificate.

        `until`: deadline of that connection, on the loop's clock.
        """
        now = asyncio.get_running_loop().time()
        last = now if self._hurried else now + self.config.connect_timeout_seconds
        deadline = asyncio.timeout_at(min(last, until or last))
        self._deadlines[deadline] = None
        try:
            async with deadline:
                certificate = await trust.shown(url, self.config.server_name)
        except (OSError, ValueError):  # time-outs and ssl.SSLError are OSErrors; ValueError: an invalid name
            certificate = None
        finally:
            self._deadlines.pop(deadline, None)
        return trust.words(error, certificate, url, self.config, self.now())

    @property
    def busy(self) -> bool:
        """Whether a call is open."""
        return bool(self._deadlines)

    def cancel_calls(self) -> None:
        """End the open calls at once, as after a time-out. Later calls are not sent."""
        self._hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # its time-out has just expired
                deadline.reschedule(0)


def _destination(request: OutgoingRequest) -> tuple[bool, str, int, bytes]:
    """Return whether a request uses TLS, its host and port, and its bytes. Raise CallFailed if it cannot be sent.

    The host is a name or an address. An IPv6 address can have a scope.
    """
    parts = urlsplit(request.url)
    # In a URL, the scope %eth0 is written as %25eth0 (RFC 6874).
    host, default = unquote(parts.hostname or ""), _PORTS.get(parts.scheme)
    if default is None or not host:
        raise CallFailed("the request cannot be sent: its URL is neither http nor https")
    port = parts.port or default
    name = host.partition("%")[0]  # the scope has no meaning on the other device (RFC 6874, section 4)
    bracketed = f"[{name}]" if ":" in name else name
    headers = {"host": bracketed if port == default else f"{bracketed}:{port}", **request.headers}
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        sent = request_bytes(request.method, target, headers, request.body)
    except ValueError as error:
        raise CallFailed(f"the request cannot be sent: {error}") from None
    return default == _PORTS["https"], host, port, sent


def _words(error: Exception) -> str:
    """Return the reason of a failed call as text. Omit the text of unexpected errors, which could quote the request."""
    return str(error) if isinstance(error, CallFailed) else f"the connection broke ({type(error).__name__})"
