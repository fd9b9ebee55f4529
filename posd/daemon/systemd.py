"""sd_notify: a datagram to the service manager, and nothing where there is none."""

import asyncio
import os
import socket

import structlog

from posd.api.certificate import ServedCertificate
from posd.base.ids import Channel
from posd.daemon import health
from posd.payments.reconcile import Reconciler
from posd.records.callback_urls import CallbackUrls
from posd.terminals.fleet import Fleet


def notify(**state: str) -> None:
    """Tell the service manager, as in `notify(READY="1", STATUS="listening")`."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    text = "\n".join(f"{name}={value}" for name, value in state.items())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
        try:
            sender.sendto(text.encode(), address)
        except OSError:
            return  # the manager went away; the daemon works on


# When posd is ready, and how it is, for the service manager.

#: Seconds between two calls of posd's own to its webhook listener, until one comes through.
ANSWER_RETRY_SECONDS = 1.0
#: An id that no payment has: what is called under it has no effect.
NO_PAYMENT = "00000000-0000-0000-0000-000000000000"

log = structlog.get_logger("posd.daemon")


async def until_it_answers(host: str, port: int, certificate: ServedCertificate, urls: CallbackUrls) -> None:
    """Return when the webhook listener answers as terminals call it: posd is not ready before."""
    path = urls.path(Channel.TRANSACTION, NO_PAYMENT)
    told = None
    while (trouble := await health.trouble(host, port, certificate.served, path)) is not None:
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


def status(at: str, fleet: Fleet, reconciler: Reconciler) -> str:
    """Say in one line how it is, for the service manager."""
    reachable = sum(map(fleet.addresses.reachable, fleet.serials))
    words = f"listening on {at}; {reachable} of {len(fleet.serials)} terminals reachable"
    busy = reconciler.open_terminals()
    return f"{words}; payments open on {', '.join(sorted(busy))}" if busy else words
