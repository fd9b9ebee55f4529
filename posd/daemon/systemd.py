"""What the service manager hears (sd_notify(3)): when posd is ready, and how it is; nothing where there is none."""

import asyncio
import hashlib
import os
import socket
import ssl
from contextlib import suppress

import structlog

from posd.api.certificate import ServedCertificate
from posd.base.ids import Channel
from posd.base.text import shown
from posd.daemon.in_force import InForce
from posd.payments.reconcile import Reconciler
from posd.records.callback_urls import CallbackUrls
from posd.terminals.fleet import Fleet
from posd.tls import Served, server_hostname

#: Seconds between two calls of posd's own to its webhook listener, until one comes through.
ANSWER_RETRY_SECONDS = 1.0
#: An id that no payment has: what is called under it has no effect.
NO_PAYMENT = "00000000-0000-0000-0000-000000000000"
#: How long the answer may take, in seconds.
ANSWER_SECONDS = 5.0
#: A listener on all addresses is asked at this one.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here

log = structlog.get_logger("posd.daemon")


def notify(**state: str) -> None:
    """Tell the service manager, as in `notify(READY="1", STATUS="listening")`.

    A line feed in a value would begin another assignment: each value is one line.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    text = "\n".join(f"{name}={shown(value)}" for name, value in state.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(text.encode(), address)
        except OSError:
            return  # the manager went away; the daemon works on


async def until_it_answers(host: str, port: int, certificate: ServedCertificate, urls: CallbackUrls) -> None:
    """Return when the webhook listener answers as terminals call it: posd is not ready before."""
    path = urls.path(Channel.TRANSACTION, NO_PAYMENT)
    told = None
    while (trouble := await _trouble(host, port, certificate.served, path)) is not None:
        if trouble != told:
            log.error(
                "listener.no_answer",
                error=trouble,
                listen=f"{host}:{port}",
                detail="posd is ready when its own call comes through; look at the firewall of this machine",
                retry_s=ANSWER_RETRY_SECONDS,
            )
            told = trouble
        await asyncio.sleep(ANSWER_RETRY_SECONDS)


async def _trouble(host: str, port: int, served: Served, path: str) -> str | None:
    """Ask the listener at an address; return in words why it does not answer as it should, None where it does.

    `path` is an authentic callback address. It is asked for by GET, which is answered with 405 and has no effect.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # the certificate is compared: it is this one and no other
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            at = _LOOPBACK.get(host, host)
            reader, writer = await asyncio.open_connection(at, port, ssl=context, server_hostname=server_hostname(at))
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


def status(at: str, fleet: Fleet, reconciler: Reconciler, in_force: InForce) -> str:
    """Say in one line how it is, for the service manager."""
    reachable = sum(map(fleet.addresses.reachable, fleet.serials))
    words = f"listening on {at}; {reachable} of {len(fleet.serials)} terminals reachable"
    if busy := reconciler.open_terminals():
        words += f"; payments open on {', '.join(sorted(busy))}"
    return f"{words}; a changed configuration was refused: {in_force.refused[0]}" if in_force.refused else words
