"""Whether the webhook listener answers, asked as a terminal would: over TCP and TLS, by a callback address."""

import asyncio
import hashlib
import ssl
from contextlib import suppress

from posd.tls import Served

#: How long the answer may take, in seconds.
ANSWER_SECONDS = 5.0
#: Who listens on all addresses is asked at this one.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here


async def trouble(host: str, port: int, served: Served, path: str) -> str | None:
    """Ask the listener at an address; return in words why it does not answer as it should, None where it does.

    `path` is an authentic callback address. It is asked for by GET, which is answered with 405 and has no effect.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is compared: it is this one and no other
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            reader, writer = await asyncio.open_connection(_LOOPBACK.get(host, host), port, ssl=context)
            try:
                shown = hashlib.sha256(writer.get_extra_info("ssl_object").getpeercert(binary_form=True)).hexdigest()
                if shown != served.info.fingerprint_sha256:
                    return f"another program answers on port {port}, with another certificate"
                writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode("ascii"))
                status = await reader.readline()
            finally:
                with suppress(AttributeError):  # Python 3.11.2 (Debian 12): so it fails where it is closed
                    writer.transport.abort()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None if status.startswith(b"HTTP/1.1 405 ") else f"the answer was {status.decode('latin-1').strip()!r}"
