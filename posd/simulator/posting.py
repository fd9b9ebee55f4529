"""One POST to a webhook receiver, and what came of it; what follows is each channel's own policy.

Source: terminal API, Delivery, Printing.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import httpx2

from posd.simulator.clock import Clock


class Lost(StrEnum):
    """An attempt that brought no HTTP status; the words tell the reader of the ledger which it was."""

    TIMEOUT = "timeout"
    RESET = "connection_reset"
    DNS = "dns_failure"
    #: Refused or without a route: the consumer is away. The terminal API does not name it; it is a lost connection.
    UNREACHABLE = "unreachable"
    #: The receiver's certificate is not trusted: nothing was sent. The terminal API does not name it.
    TLS = "tls_failure"


#: How Python tells that the receiver hung up in the TLS handshake; older ones (Debian 12's) take it for an orderly end.
HANDSHAKE_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)

#: The HTTP status, or how the attempt was lost.
Outcome = int | Lost


class Poster:
    """Posts JSON; a connection per attempt: a kept one that went stale would look like a failure of the consumer."""

    def __init__(self, tls: ssl.SSLContext, timeout: float, clock: Clock) -> None:
        """`timeout` is in real seconds for a whole attempt; `tls` verifies the receivers' certificates."""
        self._timeout = timeout
        self._clock = clock
        #: There is no network: nothing is tried.
        self.offline = False
        self._client = _client(tls)
        # It trusts nobody: the handshake ends with the alert that the receiver's CA is unknown.
        self._distrustful = _client(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def post(self, url: str, body: bytes, *, distrusted: bool = False) -> Outcome:
        """Make one attempt. Whatever goes wrong is an outcome.

        `distrusted`: as a terminal that trusts no receiver's certificate. Over plain HTTP there is none to distrust.
        """
        with self._clock.held():
            outcome = await self._attempt(self._distrustful if distrusted else self._client, url, body)
        if outcome is Lost.TIMEOUT:
            await self._clock.make_up(self._timeout)
        return outcome

    async def close(self) -> None:
        """Close whatever is open."""
        await self._client.aclose()
        await self._distrustful.aclose()

    async def _attempt(self, client: httpx2.AsyncClient, url: str, body: bytes) -> Outcome:
        if self.offline:
            return Lost.UNREACHABLE
        opened = []

        async def keep(name: str, info: Mapping[str, Any]) -> None:
            if name == "connection.connect_tcp.complete":
                opened.append(info["return_value"])

        try:
            async with asyncio.timeout(self._timeout):
                # The answer's body is nobody's business, and can be endless: only its status is read.
                watch = {"trace": keep}
                async with client.stream("POST", url, content=body, extensions=watch) as response:
                    return response.status_code
        except (TimeoutError, httpx2.TimeoutException):
            return Lost.TIMEOUT
        except httpx2.ConnectError as error:
            return _why_not_connected(error)
        except httpx2.HTTPError:
            return Lost.RESET
        finally:
            for connection in opened:  # the client leaves it open where it is canceled in the TLS handshake
                await connection.aclose()


def _client(tls: ssl.SSLContext) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        verify=tls,
        trust_env=False,
        follow_redirects=False,
        timeout=None,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        headers={"content-type": "application/json", "user-agent": "card-terminal"},
    )


def _why_not_connected(error: BaseException) -> Lost:
    causes = list(_causes(error))
    if any(isinstance(cause, HANDSHAKE_BROKEN_OFF) for cause in causes):
        return Lost.RESET
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Lost.TLS
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Lost.DNS
    return Lost.UNREACHABLE


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
