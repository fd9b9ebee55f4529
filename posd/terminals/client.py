"""The client for terminals: one fresh connection a call, and exact knowledge of what was sent.

A stale kept-alive connection would make doubt of routine, so none is kept. The request is one write (`exchange`), and
is marked just before: a failure before the mark is `NotSent`, one after it `Lost`.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from posd.base.clocks import wall
from posd.terminals import trust
from posd.terminals.attempt import Attempt, Lost, NotSent, Replied, Withheld, with_remark
from posd.terminals.auth import clock
from posd.terminals.auth.request import Authentication, NotAuthenticated, Request, Unreadable, authenticate
from posd.terminals.exchange import Answer, Broken, Exchange, request_bytes
from posd.terminals.trust import WORDS, Reached, Unreached, fingerprint, probe
from posd.tls import server_hostname

#: Where a name has several addresses, so long one has to itself before the next is tried beside it, in seconds
#: (RFC 8305, section 5).
ATTEMPT_SECONDS = 0.25

#: Sent with every request; what authenticates it comes on top.
HEADERS: Final = MappingProxyType(
    {
        "user-agent": "posd",
        "connection": "close",
        "accept": "application/json",
        "accept-encoding": "identity",  # replies are read as they come: a packed one could not be judged
    }
)

#: The port of a URL without one.
_PORTS: Final = MappingProxyType({"http": 80, "https": 443})


class AnotherDevice(Exception):
    """Not the device that was meant is at that address; the message says so. Nothing was sent."""


class Device:
    """What a call needs to know of one terminal: trust, time-outs (seconds), how a request is authenticated."""

    def __init__(
        self,
        trust: ssl.SSLContext,
        connect_timeout: float,
        reply_timeout: float,
        authentication: Authentication,
        *,
        server_name: str = "",
        ca_file: Path | None = None,
        serial: str = "",
        window: int | None = None,
        now: Callable[[], datetime] = wall,
    ) -> None:
        """`server_name` is what a certificate must be for ("" for the host); `ca_file`, in `trust` already, is named
        where one is refused. `serial` is what a certificate of that CA bears that proves whose it is ("": none does).
        `window`: by how many seconds clocks may differ for the authentication, None where it needs no clock.
        """
        self.connect_timeout = connect_timeout
        self.reply_timeout = reply_timeout
        self._trust = trust
        self._server_name = server_name
        self._ca_file = ca_file
        self._serial = serial
        self._bearing: set[str] = set()
        self._looked_at: str | None = None
        self._authentication = authentication
        self._window = window
        self._now = now
        self._hurried = False
        self._deadlines: dict[asyncio.Timeout, None] = {}  # in the order in which they were set

    def judge_dates(self, judged: bool) -> None:
        """Have the dates of the terminal's certificate judged or not: a wrong clock says nothing of them."""
        trust.judge_dates(self._trust, judged)

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
        """Send one request and say what is known of it. It ends within the connect and the reply time-out together.

        `written` is called when the whole request was handed to the network. With `same_as`, the SHA-256 fingerprint
        (hex) of a certificate, nothing is sent to a device that shows another one; with `proven`, nothing to one whose
        certificate does not prove that it is the terminal. `connected` is called with the fingerprint of the device
        that is there, None without TLS, before anything is sent; where it raises Withheld, nothing is.
        """
        writing = False

        def about_to_write(certificate: str | None) -> None:
            nonlocal writing
            connected(certificate)
            if same_as is not None and certificate != same_as:
                raise AnotherDevice(
                    f"another device is there than the one that was sent the payment: its certificate has "
                    f"fingerprint {certificate or 'none'}, not {same_as}"
                )
            if proven and not self.proves(certificate):
                raise AnotherDevice(
                    f"the certificate of the device that is there does not bear the serial {self._serial}, and "
                    f"that of the terminal does (its fingerprint is {certificate or 'none'})"
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
                else f"no whole reply within {self.connect_timeout + self.reply_timeout:g} s"
            )
        except Exception as error:  # noqa: BLE001 - the payment needs a judgement
            refused = trust.refusal(error)
            reason = _words(error) if refused is None else await self._explain(refused, url, deadline.when())
        finally:
            self._deadlines.pop(deadline, None)
        return Lost(reason) if writing else NotSent(reason)

    async def _send(
        self,
        method: str,
        url: str,
        body: bytes | None,
        about_to_write: Callable[[str | None], None],
        written: Callable[[], None],
    ) -> Replied:
        content_type = {} if body is None else {"content-type": "application/json"}
        request = authenticate(Request(method, url, {**HEADERS, **content_type}, body), self._authentication)
        goal = _goal(request)

        def connected(transport: asyncio.Transport) -> None:
            certificate = None
            if goal.secure:
                certificate = self._seen(transport.get_extra_info("ssl_object").getpeercert(binary_form=True))
            about_to_write(certificate)

        exchange = Exchange(goal.request, connected, self.reply_timeout)
        try:
            await self._connect(goal, exchange)
            answer = await exchange.answer(written)
        finally:
            exchange.close()
        return self._replied(request, answer)

    async def _connect(self, goal: "_Goal", exchange: Exchange) -> None:
        """Connect, TLS included, within the connect time-out. Raise Broken, from what it failed of."""
        host, secure = goal.host, goal.secure
        try:
            async with asyncio.timeout(self.connect_timeout):
                await asyncio.get_running_loop().create_connection(
                    lambda: exchange,
                    host,
                    goal.port,
                    ssl=self._trust if secure else None,
                    server_hostname=server_hostname(self._server_name or host.partition("%")[0]) if secure else None,
                    ssl_handshake_timeout=self.connect_timeout if secure else None,
                    happy_eyeballs_delay=None if _is_address(host) else ATTEMPT_SECONDS,
                )
        except TimeoutError:
            raise Broken("the connection was not established in time") from None
        except OSError as error:
            raise Broken(f"cannot connect: {_why_not(error)}") from error
        except ValueError:  # of a name that is none
            raise Broken("cannot connect: its name cannot be looked up") from None

    def _replied(self, request: Request, answer: Answer) -> Replied:
        """Return what the reply says, and what there is to say of it."""
        if not answer.complete:
            return Replied(answer.status, answer.body, complete=False)
        remark = ""
        if self._window is not None and not 200 <= answer.status < 300:
            ahead = clock.ahead(self._now(), answer.date)
            remark = clock.remark(answer.status, ahead, self._window)
        if answer.status == HTTPStatus.NOT_FOUND:
            tried = f"{request.method} {urlsplit(request.url).path}"
            remark = with_remark(f"tried was {tried}: check edition, and this row of the profile", remark)
        sealed, body = False, answer.body
        try:
            body = request.opened(body)
        except Unreadable as error:
            sealed, remark = True, with_remark(str(error), remark)
        return Replied(answer.status, body, remark=remark, sealed=sealed)

    async def probe(self, base_url: str) -> Reached | Unreached:
        """Look whether it is there: connect as for a call, and send nothing."""
        found = await probe(base_url, self._trust, self._server_name, self.connect_timeout, self._explain)
        if isinstance(found, Reached):
            self._seen(found.der)
        return found

    def proves(self, certificate: str | None) -> bool:
        """Whether that certificate, which verified here, bears the serial of the terminal."""
        return certificate in self._bearing

    def _seen(self, certificate: bytes | None) -> str | None:
        """Note whether a certificate that verified bears the serial; return its fingerprint."""
        found = fingerprint(certificate)
        if found is not None and found != self._looked_at and self._serial:
            self._looked_at = found
            if trust.bears(certificate or b"", self._serial):
                self._bearing.add(found)
        return found

    async def _explain(self, error: ssl.SSLCertVerificationError, url: str, until: float | None = None) -> str:
        """Say why the certificate there was refused; `until` (on the loop's clock) there is time to look at it."""
        now = asyncio.get_running_loop().time()
        last = now if self._hurried else min(now + self.connect_timeout, until or now + self.connect_timeout)
        deadline = asyncio.timeout_at(last)
        self._deadlines[deadline] = None
        try:
            async with deadline:
                certificate = await trust.shown(url, self._server_name)
        except (OSError, ValueError):  # time-outs and ssl.SSLError are OSErrors; ValueError: of a name
            certificate = None
        finally:
            self._deadlines.pop(deadline, None)
        expected = trust.called(url, self._server_name)
        return trust.words(error, certificate, expected, self._ca_file, self._now())

    @property
    def busy(self) -> bool:
        """Whether a call is under way."""
        return bool(self._deadlines)

    def hurry(self) -> None:
        """End the calls under way now, as if their time were up; later ones are not sent."""
        self._hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # it has just run out by itself
                deadline.reschedule(0)


class _Goal(msgspec.Struct, frozen=True):
    """Where a request goes, and its bytes. `host` is a name or an address, with the scope of an IPv6 one."""

    secure: bool
    host: str
    port: int
    request: bytes


def _goal(request: Request) -> _Goal:
    """Return where a request goes. Raise Broken where it cannot be sent."""
    parts = urlsplit(request.url)
    host, default = unquote(parts.hostname or ""), _PORTS.get(parts.scheme)  # a scope is %25eth0 in a URL (RFC 6874)
    if default is None or not host:
        raise Broken("the request cannot be sent: its URL is none of http or https")
    port = parts.port or default
    name = host.partition("%")[0]  # to the other side, its scope means nothing (RFC 6874, section 4)
    bracketed = f"[{name}]" if ":" in name else name
    headers = {"host": bracketed if port == default else f"{bracketed}:{port}", **request.headers}
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        sent = request_bytes(request.method, target, headers, request.body)
    except ValueError as error:
        raise Broken(f"the request cannot be sent: {error}") from None
    return _Goal(default == _PORTS["https"], host, port, sent)


def _is_address(host: str) -> bool:
    if ":" in host:  # no name has one
        return True
    try:
        socket.inet_pton(socket.AF_INET, host)
    except OSError:
        return False
    return True


def _why_not(error: OSError) -> str:
    """Say in words why a connection did not come about."""
    code = errno.ECONNRESET if isinstance(error, ConnectionResetError) else error.errno
    return WORDS.get(code or 0) or str(error)


def _words(error: Exception) -> str:
    """Say in words what a failed call failed of."""
    if isinstance(error, Broken | NotAuthenticated | AnotherDevice | Withheld):
        return str(error)
    return f"the connection broke ({type(error).__name__})"  # its own text could quote what was sent
