"""Client for terminals: a new connection for each call, and exact knowledge of the bytes sent.

A stale kept-alive connection would cause many uncertain outcomes, so no connection is kept. The request is one write
(`exchange`), with a mark just before it. A failure before the mark is `NotSent`; a failure after it is `ReplyLost`.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urlsplit

from posd.base.clocks import wall
from posd.base.fair_queue import end_turn
from posd.terminals import trust
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
    UnreadableReply,
    authenticate,
)
from posd.terminals.exchange import ClientExchange, HttpAnswer, request_bytes
from posd.terminals.trust import WORDS, Reached, TerminalTrust, Unreached, fingerprint, probe
from posd.tls import server_hostname
from posd.tls.certificate import has_serial

#: Seconds after which the next address of a host name is tried in parallel (RFC 8305, section 5).
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

#: Port of a URL that has no port.
_PORTS: Final = MappingProxyType({"http": 80, "https": 443})


@dataclass(eq=False, repr=False)
class TerminalAccess:
    """Settings for calls to one terminal: trust, time-outs (seconds), authentication.

    `window`: accepted clock difference of the authentication (s), or None.
    """

    trust: TerminalTrust
    connect_timeout: float
    reply_timeout: float
    authentication: Authentication
    window: int | None = field(default=None, kw_only=True)
    now: Callable[[], datetime] = field(default=wall, kw_only=True)
    _bearing: set[str] = field(default_factory=set, init=False)
    _looked_at: str | None = field(default=None, init=False)
    _hurried: bool = field(default=False, init=False)
    #: Time-outs of the open calls, in the order in which they were set.
    _deadlines: dict[asyncio.Timeout, None] = field(default_factory=dict, init=False)

    def judge_dates(self, judged: bool) -> None:
        """Set whether the dates of the terminal's certificate are checked. With a wrong clock they must not be."""
        trust.judge_dates(self.trust.context, judged)

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
        """Send one request, and return the result. The call ends within the sum of the connect and reply time-outs.

        `written`: called when the whole request was passed to the network. `same_as`: SHA-256 fingerprint (hex).
        Nothing is sent to a device with another certificate. `proven`: nothing is sent to a device whose certificate
        does not prove the terminal's identity. `connected`: called before anything is sent, with the fingerprint of the
        device (None without TLS). If it raises CallFailed, nothing is sent.
        """
        end_turn()
        writing = False

        def about_to_write(certificate: str | None) -> None:
            nonlocal writing
            connected(certificate)
            if same_as is not None and certificate != same_as:
                raise CallFailed(
                    "another device is there than the one that got the payment: its certificate has fingerprint "
                    f"{certificate or 'none'}, not {same_as}"
                )
            if proven and not self.proves(certificate):
                raise CallFailed(
                    f"the certificate of the present device does not have the serial {self.trust.serial}, but "
                    f"that of the terminal has (its fingerprint is {certificate or 'none'})"
                )
            writing = True

        deadline = asyncio.timeout(0 if self._hurried else self.connect_timeout + self.reply_timeout)
        try:
            async with deadline:
                self._deadlines[deadline] = None
                return await self._send(method, url, body, about_to_write, written)
        except TimeoutError:
            reason = (
                "posd was stopped before the terminal answered"
                if self._hurried
                else f"no complete reply within {self.connect_timeout + self.reply_timeout:g} s"
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

        exchange = ClientExchange(sent, connected, self.reply_timeout)
        try:
            await self._connect(exchange, host, port, secure=secure)
            answer = await exchange.answer(written)
        finally:
            exchange.close()
        return self._replied(request, answer)

    async def _connect(self, exchange: ClientExchange, host: str, port: int, *, secure: bool) -> None:
        """Connect within the connect time-out, including TLS. Raise CallFailed with the reason."""
        try:
            async with asyncio.timeout(self.connect_timeout):
                await asyncio.get_running_loop().create_connection(
                    lambda: exchange,
                    host,
                    port,
                    ssl=self.trust.context if secure else None,
                    server_hostname=server_hostname(self.trust.server_name or host.partition("%")[0])
                    if secure
                    else None,
                    ssl_handshake_timeout=self.connect_timeout if secure else None,
                    happy_eyeballs_delay=None if _is_address(host) else ATTEMPT_SECONDS,
                )
        except TimeoutError:
            raise CallFailed("the connection was not established in time") from None
        except OSError as error:
            raise CallFailed(f"cannot connect: {_why_not(error)}") from error
        except ValueError:  # an invalid name
            raise CallFailed("cannot connect: its name cannot be looked up") from None

    def _replied(self, request: OutgoingRequest, answer: HttpAnswer) -> Replied:
        """Return the decrypted reply with its remark."""
        if not answer.complete:
            return Replied(answer.status, answer.body, complete=False)
        remark = ""
        if self.window is not None and not 200 <= answer.status < 300:
            ahead = clock_ahead(self.now(), answer.date)
            remark = clock_remark(answer.status, ahead, self.window)
        if answer.status == HTTPStatus.NOT_FOUND:
            tried = f"{request.method} {urlsplit(request.url).path}"
            remark = with_remark(f"tried was {tried}: check edition, and this row of the profile", remark)
        sealed, body = False, answer.body
        try:
            body = request.opened(body)
        except UnreadableReply as error:
            sealed, remark = True, with_remark(str(error), remark)
        return Replied(answer.status, body, remark=remark, sealed=sealed)

    async def probe(self, base_url: str) -> Reached | Unreached:
        """Probe a URL: connect as for a call, and send nothing."""
        found = await probe(base_url, self.trust, self.connect_timeout, self._explain)
        if isinstance(found, Reached):
            self._seen(found.der)
        return found

    def proves(self, certificate: str | None) -> bool:
        """Return whether a certificate that verified here has the serial of the terminal."""
        return certificate in self._bearing

    def _seen(self, certificate: bytes | None) -> str | None:
        """Record whether a verified certificate has the serial. Return its fingerprint."""
        found = fingerprint(certificate)
        if found is not None and found != self._looked_at and self.trust.serial:
            self._looked_at = found
            if has_serial(certificate or b"", self.trust.serial):
                self._bearing.add(found)
        return found

    async def _explain(self, error: ssl.SSLCertVerificationError, url: str, until: float | None = None) -> str:
        """Return why the certificate at an address was refused.

        `until`: deadline for reading it, on the loop's clock.
        """
        now = asyncio.get_running_loop().time()
        last = now if self._hurried else min(now + self.connect_timeout, until or now + self.connect_timeout)
        deadline = asyncio.timeout_at(last)
        self._deadlines[deadline] = None
        try:
            async with deadline:
                certificate = await trust.shown(url, self.trust.server_name)
        except (OSError, ValueError):  # time-outs and ssl.SSLError are OSErrors; ValueError: an invalid name
            certificate = None
        finally:
            self._deadlines.pop(deadline, None)
        return trust.words(error, certificate, url, self.trust, self.now())

    @property
    def busy(self) -> bool:
        """Whether a call is open."""
        return bool(self._deadlines)

    def cancel_calls(self) -> None:
        """Cancel the open calls, as a time-out does. Later calls are not sent."""
        self._hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # its time-out has just expired
                deadline.reschedule(0)


def _destination(request: OutgoingRequest) -> tuple[bool, str, int, bytes]:
    """Return whether a request uses TLS, its host and port, and its bytes.

    The host is a name or an address, with the scope of an IPv6 one. Raise CallFailed if it cannot be sent.
    """
    parts = urlsplit(request.url)
    # A URL has the scope %eth0 as %25eth0 (RFC 6874).
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


def _is_address(host: str) -> bool:
    if ":" in host:  # a host name contains no colon
        return True
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


def _why_not(error: OSError) -> str:
    """Return the reason of a failed connection as text."""
    code = errno.ECONNRESET if isinstance(error, ConnectionResetError) else error.errno
    return WORDS.get(code or 0) or str(error)


def _words(error: Exception) -> str:
    """Return the reason of a failed call as text."""
    if isinstance(error, CallFailed):
        return str(error)
    return f"the connection broke ({type(error).__name__})"  # the error's own text could quote the request
