"""The HTTP client for terminals: one fresh connection a call, and exact knowledge of what was sent (design 4).

A stale kept-alive connection would make doubt of routine, so none is kept. The trace of the HTTP library tells when
the first byte of the request is about to be written: before that a failure is `NotSent`, after it `Lost`.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import httpx2

from posd.core.starts import Attempt, Lost, NotSent, Replied
from posd.terminals.authentication import Authentication, NotAuthenticated, Request, authenticate

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

#: From here on bytes of the request may be on the network.
_WRITING = "http11.send_request_headers.started"
#: From here on all of it is.
_WRITTEN = "http11.send_request_body.complete"


class Device:
    """What a call needs to know of one terminal: trust, time-outs (seconds), how a request is authenticated."""

    def __init__(
        self,
        trust: ssl.SSLContext,
        connect_timeout: float,
        reply_timeout: float,
        authentication: Authentication,
    ) -> None:
        self.connect_timeout = connect_timeout
        self.reply_timeout = reply_timeout
        self._authentication = authentication
        self._hurried = False
        self._deadlines: set[asyncio.Timeout] = set()
        self._client = httpx2.AsyncClient(
            verify=trust,
            trust_env=False,
            http2=False,
            follow_redirects=False,
            limits=httpx2.Limits(max_keepalive_connections=0),
            timeout=httpx2.Timeout(reply_timeout, connect=connect_timeout),
        )

    async def call(
        self, method: str, url: str, body: bytes | None = None, written: Callable[[], None] = lambda: None
    ) -> Attempt:
        """Send one request and say what is known of it. It ends within the connect and the reply time-out together.

        `written` is called when the whole request was handed to the network.
        """
        writing = asyncio.Event()
        deadline = asyncio.timeout(0 if self._hurried else self.connect_timeout + self.reply_timeout)

        async def trace(name: str, _info: Mapping[str, Any]) -> None:
            if name == _WRITING:
                writing.set()
            elif name == _WRITTEN:
                written()

        try:
            async with deadline:
                self._deadlines.add(deadline)
                return await self._send(method, url, body, trace)
        except TimeoutError:
            reason = (
                "posd was stopped before the terminal answered"
                if self._hurried
                else f"no whole reply within {self.connect_timeout + self.reply_timeout:g} s"
            )
        except Exception as error:  # noqa: BLE001 - whatever it was, the payment needs a judgement
            reason = _words(error)
        finally:
            self._deadlines.discard(deadline)
        return Lost(reason) if writing.is_set() else NotSent(reason)

    async def _send(self, method: str, url: str, body: bytes | None, trace: object) -> Replied:
        content_type = {} if body is None else {"content-type": "application/json"}
        request = authenticate(Request(method, url, {**HEADERS, **content_type}, body), self._authentication)
        self._client.cookies.clear()  # no state from one payment to the next
        built = self._client.build_request(
            request.method, request.url, content=request.body, headers=request.headers, extensions={"trace": trace}
        )
        response = await self._client.send(built, stream=True)
        try:
            read = bytearray()
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > MAX_REPLY_BYTES:
                    return Replied(response.status_code, bytes(read[:MAX_REPLY_BYTES]), complete=False)
            return Replied(response.status_code, bytes(read))
        finally:
            await response.aclose()

    def hurry(self) -> None:
        """End the calls under way now, as if their time were up; later ones are not sent."""
        self._hurried = True
        for deadline in self._deadlines:
            with suppress(RuntimeError):  # it has just run out by itself
                deadline.reschedule(0)

    async def close(self) -> None:
        """Close whatever is open."""
        await self._client.aclose()


def _words(error: Exception) -> str:
    """Say in words what a failed call failed of; the library's own text where there is one."""
    match error:
        case NotAuthenticated():
            return str(error)
        case httpx2.ConnectTimeout():
            return "the connection was not established in time"
        case httpx2.ConnectError():
            return f"cannot connect: {error}"
        case httpx2.ReadTimeout():
            return "no reply in time"
        case httpx2.TimeoutException():
            return "the request could not be written in time"
        case httpx2.RemoteProtocolError():
            return "the reply is not HTTP"  # in the library's words it would be quoted, metadata and all
        case _:
            return f"the connection broke ({type(error).__name__})"
