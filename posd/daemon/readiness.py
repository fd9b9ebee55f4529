"""When posd is ready, and how it is, for the service manager."""

import asyncio

import structlog

from posd.api import self_check
from posd.api.certificate import ServedCertificate
from posd.base.callback_tokens import Channel
from posd.payments.reconcile import Reconciler
from posd.records.callback_urls import CallbackUrls
from posd.terminals.fleet import Fleet

#: Seconds between two calls of posd's own to its webhook listener, until one comes through.
ANSWER_RETRY_SECONDS = 1.0
#: An id that no payment has: what is called under it has no effect.
NO_PAYMENT = "00000000-0000-0000-0000-000000000000"

log = structlog.get_logger("posd.daemon")


async def until_it_answers(host: str, port: int, certificate: ServedCertificate, urls: CallbackUrls) -> None:
    """Return when the webhook listener answers as terminals call it: posd is not ready before."""
    path = urls.path(Channel.TRANSACTION, NO_PAYMENT)
    told = None
    while (trouble := await self_check.trouble(host, port, certificate.served, path)) is not None:
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
    words = f"listening on {at}; {sum(map(fleet.reachable, fleet.serials))} of {len(fleet.serials)} terminals reachable"
    busy = reconciler.open_terminals()
    return f"{words}; payments open on {', '.join(sorted(busy))}" if busy else words
