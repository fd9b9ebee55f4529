"""Looking whether a terminal is there: TCP, TLS as for a payment, and goodbye. No request is sent."""

import asyncio
import errno
import hashlib
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from urllib.parse import unquote, urlsplit

import msgspec

#: How long the terminal has for its part of the goodbye, in seconds.
GOODBYE_SECONDS = 1.0

#: Why a connection does not come about -> words.
WORDS: Mapping[int, str] = {
    errno.ECONNREFUSED: "nothing listens there: the device is on, but it takes no connections on that port",
    errno.EHOSTUNREACH: "nothing answers at that address: is the terminal switched on and in this network?",
    errno.ENETUNREACH: "this machine has no network in which that address lies",
    errno.ECONNRESET: "the device closed the connection at once",
}


class Reached(msgspec.Struct, frozen=True):
    """Something is there, and over https it is trusted: the SHA-256 fingerprint (hex) of its certificate."""

    certificate: str | None


class Unreached(msgspec.Struct, frozen=True):
    """Why not, in words; `refused`: something is there, but its certificate is not the one that is trusted."""

    reason: str
    refused: bool = False


def fingerprint(connection: ssl.SSLObject) -> str | None:
    """Return the SHA-256 fingerprint (hex, lower case) of the peer's certificate."""
    certificate = connection.getpeercert(binary_form=True)
    return hashlib.sha256(certificate).hexdigest() if certificate else None


#: Says why the certificate at a base URL was refused.
Explain = Callable[[ssl.SSLCertVerificationError, str], Awaitable[str]]


async def probe(
    base_url: str, trust: ssl.SSLContext, server_name: str, seconds: float, explain: Explain
) -> Reached | Unreached:
    """Connect and close again, within `seconds` for the first. `server_name` is what the certificate must name."""
    parts = urlsplit(base_url)
    host = unquote(parts.hostname or "")  # a scope stands in a URL as %25eth0 (RFC 6874)
    secure = parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    try:
        async with asyncio.timeout(seconds):
            _, writer = await (
                asyncio.open_connection(host, port, ssl=trust, server_hostname=server_name or host.partition("%")[0])
                if secure
                else asyncio.open_connection(host, port)
            )
    except TimeoutError:
        return Unreached(f"no connection within {seconds:g} s: is the terminal switched on and in this network?")
    except ssl.SSLCertVerificationError as error:
        return Unreached(await explain(error, base_url), refused=True)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError; ValueError: a name that cannot be looked up
        return _unreached(error)
    connection = writer.get_extra_info("ssl_object")
    seen = Reached(fingerprint(connection) if connection is not None else None)
    await _goodbye(writer)
    return seen


async def _goodbye(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await writer.wait_closed()
            return
    writer.transport.abort()  # it does not answer the goodbye


def _unreached(error: OSError | ValueError) -> Unreached:
    if isinstance(error, ssl.SSLError):
        return Unreached(f"it does not speak TLS as it should ({error.reason or type(error).__name__})")
    if isinstance(error, OSError):
        return Unreached(WORDS.get(error.errno or 0) or f"cannot connect: {error.strerror or error}")
    return Unreached("its name cannot be looked up")
