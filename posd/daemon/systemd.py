"""Notices for the service manager (sd_notify(3)): readiness and status; none without it."""

import asyncio
import hashlib
import os
import socket
from contextlib import suppress

import structlog

from posd.api.certificate import ServedCertificate
from posd.base import tls_contexts
from posd.base.ids import Channel
from posd.base.text import shown
from posd.daemon.in_force import InForce
from posd.payments.reconcile import Reconciler
from posd.records.callback_urls import CallbackUrls
from posd.terminals.fleet import Fleet
from posd.tls import ServingContext, server_hostname

#: Seconds between two calls of posd to its own webhook listener, until one succeeds.
ANSWER_RETRY_SECONDS = 1.0
#: Id that no payment has: a call with it has no effect.
NO_PAYMENT = "00000000-0000-0000-0000-000000000000"
#: Most seconds for the response.
ANSWER_SECONDS = 5.0
#: Address for a call to a listener on all addresses.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here

log = structlog.get_logger("posd.daemon")


#: Values that the service manager has not accepted yet: the newest of each name.
_unsent: dict[str, str] = {}


def notify(**state: str) -> bool:
    """Send values to the service manager, as in `notify(READY="1", STATUS="listening")`; return whether it accepted
    them.

    A line feed in a value would begin another assignment, so each value is one line. A full socket is not waited for:
    the next call sends the rest.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return True
    if address.startswith("@"):
        address = "\0" + address[1:]
    waited = bool(_unsent)
    for name, value in state.items():
        _unsent.pop(name, None)
        _unsent[name] = shown(value)
    text = "\n".join(f"{name}={value}" for name, value in _unsent.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(text.encode(), socket.MSG_DONTWAIT, address)
        except BlockingIOError:
            if not waited:
                log.warning("manager.not_reading", detail=", ".join(_unsent))
            return False
        except OSError:
            pass  # the manager is gone; the daemon continues
    _unsent.clear()
    return True


async def until_it_answers(host: str, port: int, certificate: ServedCertificate, urls: CallbackUrls) -> None:
    """Wait until the webhook listener responds to a terminal's call: posd is not ready before."""
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


async def _trouble(host: str, port: int, served: ServingContext, path: str) -> str | None:
    """Call the listener; return the fault of its response in words, or None.

    `path` is an authentic callback address. The call is a GET, with the response 405 and no effect.
    """
    context = tls_contexts.unverified_client()  # the certificate is compared: exactly this one is accepted
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
                with suppress(AttributeError):  # Python 3.11.2 (Debian 12): a closed transport raises it
                    writer.transport.abort()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None if status.startswith(b"HTTP/1.1 405 ") else f"the answer was {status.decode('latin-1').strip()!r}"


def status(at: str, fleet: Fleet, reconciler: Reconciler, in_force: InForce) -> str:
    """Return the state of posd in one line, for the service manager."""
    reachable = sum(terminal.reachable is True for terminal in fleet)
    words = f"listening on {at}; {reachable} of {len(fleet.serials)} terminals reachable"
    if busy := reconciler.open_terminals():
        words += f"; payments open on {', '.join(sorted(busy))}"
    return f"{words}; a changed configuration was refused: {in_force.refused[0]}" if in_force.refused else words
