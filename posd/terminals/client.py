"""The HTTP client for terminals: one fresh connection a call, and exact knowledge of what was sent.

A stale kept-alive connection would make doubt of routine, so none is kept. The trace of the HTTP library tells when
the first byte of the request is about to be written: before that a failure is `NotSent`, after it `Lost`.
"""

import asyncio
import re
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2

from posd.base.clocks import wall
from posd.terminals import trust
from posd.terminals.attempt import Attempt, Lost, NotSent, Replied, Withheld, with_remark
from posd.terminals.auth import clock
from posd.terminals.auth.request import Authentication, NotAuthenticated, Request, Unreadable, authenticate
from posd.terminals.trust import WORDS, Reached, Unreached, fingerprint, probe

#: The scope of an IPv6 address in a URL, as in https://[fe80::1%25eth0]:6869.
_SCOPE = re.compile(r"%25[^\]]*")

#: A reply is a short JSON object; more is not read.
MAX_REPLY_BYTES = 256 * 1024

#: Sent with every request; what authenticates it comes on top.
HEADERS: Final = MappingProxyType(
    {
        "user-agent": "posd",
        "connection": "close",
        "accept": "application/json",
        "accept-encoding": "identity",  # replies are read as they come: a packed one could not be judged
    }
)

#: The connection is secured, and the certificate of the other side known.
_SECURED = "connection.start_tls.complete"
#: From here on bytes of the request may be on the network.
_WRITING = "http11.send_request_headers.started"
#: From here on all of it is.
_WRITTEN = "http11.send_request_body.complete"


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
        self._authentication = authentication
        self._window = window
        self._now = now
        self._hurried = False
        self._deadlines: dict[asyncio.Timeout, None] = {}  # in the order in which they were set
        self._client = httpx2.AsyncClient(
            verify=trust,
            trust_env=False,
            http2=False,
            follow_redirects=False,
            limits=httpx2.Limits(max_keepalive_connections=0),
            timeout=httpx2.Timeout(reply_timeout, connect=connect_timeout),
        )

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
        writing = asyncio.Event()
        certificate: str | None = None
        deadline = asyncio.timeout(0 if self._hurried else self.connect_timeout + self.reply_timeout)

        async def trace(name: str, info: Mapping[str, Any]) -> None:
            nonlocal certificate
            if name == _SECURED:
                connection = info["return_value"].get_extra_info("ssl_object")
                certificate = self._seen(connection.getpeercert(binary_form=True))
            elif name == _WRITING:
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
                writing.set()
            elif name == _WRITTEN:
                written()

        try:
            async with deadline:
                self._deadlines[deadline] = None
                return await self._send(method, url, body, trace)
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
        return Lost(reason) if writing.is_set() else NotSent(reason)

    async def _send(self, method: str, url: str, body: bytes | None, trace: object) -> Replied:
        content_type = {} if body is None else {"content-type": "application/json"}
        request = authenticate(Request(method, url, {**HEADERS, **content_type}, body), self._authentication)
        self._client.cookies.clear()  # no state from one payment to the next
        url, scope_headers, name = _without_scope(request.url)
        if self._server_name:
            name = {"sni_hostname": self._server_name}
        built = self._client.build_request(
            request.method,
            url,
            content=request.body,
            headers={**request.headers, **scope_headers},
            extensions={"trace": trace, **name},
        )
        response = await self._client.send(built, stream=True)
        try:
            read = bytearray()
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > MAX_REPLY_BYTES:
                    return Replied(response.status_code, bytes(read[:MAX_REPLY_BYTES]), complete=False)
        finally:
            await response.aclose()
        return self._replied(request, response, bytes(read))

    def _replied(self, request: Request, response: httpx2.Response, body: bytes) -> Replied:
        """Return what the reply says, and what there is to say of it."""
        remark = ""
        if self._window is not None and not response.is_success:
            ahead = clock.ahead(self._now(), response.headers.get("date"))
            remark = clock.remark(response.status_code, ahead, self._window)
        if response.status_code == httpx2.codes.NOT_FOUND:
            tried = f"{request.method} {urlsplit(request.url).path}"
            remark = with_remark(f"tried was {tried}: check edition, and this row of the profile", remark)
        sealed = False
        try:
            body = request.opened(body)
        except Unreadable as error:
            sealed, remark = True, with_remark(str(error), remark)
        return Replied(response.status_code, body, remark=remark, sealed=sealed)

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
        if (
            found is not None
            and found not in self._bearing
            and self._serial
            and trust.bears(certificate or b"", self._serial)
        ):
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

    async def close(self) -> None:
        """Close the connections that are open."""
        await self._client.aclose()


def _without_scope(url: str) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
    """Return how a URL is called whose IPv6 address has a scope: the URL as the system's resolver takes it, and header
    and name for TLS without the scope, which means nothing to the other side (RFC 6874, section 4).
    """
    host = urlsplit(url).netloc
    if "%25" not in host:
        return url, {}, {}
    bare = _SCOPE.sub("", host)
    return url.replace("%25", "%", 1), {"host": bare}, {"sni_hostname": bare[1 : bare.index("]")]}


def _why_not(error: BaseException | None) -> str | None:
    """Return in words what the system says of a connection that did not come about, None where it says nothing."""
    while error is not None:
        if isinstance(error, OSError) and (words := WORDS.get(error.errno or 0)) is not None:
            return words
        error = error.__cause__ or error.__context__
    return None


def _words(error: Exception) -> str:
    """Say in words what a failed call failed of; the library's own text where there is one."""
    match error:
        case NotAuthenticated() | AnotherDevice() | Withheld():
            return str(error)
        case httpx2.ConnectTimeout():
            return "the connection was not established in time"
        case httpx2.ConnectError():
            return f"cannot connect: {_why_not(error) or error}"
        case httpx2.ReadTimeout():
            return "no reply in time"
        case httpx2.TimeoutException():
            return "the request could not be written in time"
        case httpx2.RemoteProtocolError() if str(error).startswith("Server disconnected"):
            return "it closed the connection without an answer"
        case httpx2.RemoteProtocolError():
            return "the reply is not HTTP"  # in the library's words it would be quoted, metadata and all
        case _:
            return f"the connection broke ({type(error).__name__})"
