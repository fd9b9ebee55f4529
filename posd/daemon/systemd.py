"""Notifications for the service manager (sd_notify(3)): readiness, status and signs of life.

Without a service manager the functions do nothing.
"""

import asyncio
import hashlib
import os
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from posd.api.certificate import ServedCertificate
from posd.base import tls_contexts
from posd.base.clocks import tick
from posd.base.ids import Channel
from posd.base.text import shown
from posd.records.callback_urls import CallbackUrls
from posd.storage import StorageUnavailable
from posd.tls.certificate import server_hostname
from posd.tls.files import ServingContext

#: Seconds between two test calls of the webhook listener, until one succeeds.
ANSWER_RETRY_SECONDS = 1.0
#: Id that no payment has, so a call with it has no effect.
NO_PAYMENT = "00000000-0000-0000-0000-000000000000"
#: Time-out for the response, in seconds.
ANSWER_SECONDS = 5.0
#: Address for a test call to a listener on all addresses.
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - nothing is bound here

log = structlog.get_logger("posd.daemon")


#: Name -> newest value that the service manager has not yet accepted.
_unsent: dict[str, str] = {}


def notify(**state: str) -> bool:
    """Send values to the service manager, for example `notify(READY="1", STATUS="listening")`.

    Return whether it accepted them. Each value is written as one line, because a line feed would begin another
    assignment. posd does not wait for a full socket. The next call sends the remaining values.
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
            pass  # the service manager has ended, and the daemon continues
    _unsent.clear()
    return True


async def until_it_answers(host: str, port: int, certificate: ServedCertificate, urls: CallbackUrls) -> None:
    """Wait until the webhook listener replies to a test call. posd is ready only then."""
    path = urls.path(Channel.TRANSACTION, NO_PAYMENT)
    told = None
    while (trouble := await _trouble(host, port, certificate.served, path)) is not None:
        if trouble != told:
            log.error(
                "listener.no_answer",
                error=trouble,
                listen=f"{host}:{port}",
                detail="posd is ready when its own call arrives; check the firewall of this machine",
                retry_s=ANSWER_RETRY_SECONDS,
            )
            told = trouble
        await asyncio.sleep(ANSWER_RETRY_SECONDS)


async def _trouble(host: str, port: int, served: ServingContext, path: str) -> str | None:
    """Call the listener. Return the fault of its response as text, or None.

    `path` is an authentic callback address. The call is a GET, which has the response 405 and no effect.
    """
    context = tls_contexts.unverified_client()  # the fingerprint is compared below
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
                with suppress(AttributeError):  # Python 3.11.2 (Debian 12) raises it for a closed transport
                    writer.transport.abort()
    except TimeoutError:
        return f"no answer within {ANSWER_SECONDS:g} s"
    except OSError as error:
        return error.strerror or type(error).__name__
    return None if status.startswith(b"HTTP/1.1 405 ") else f"the answer was {status.decode('latin-1').strip()!r}"


# Signs of life (WatchdogSec= in the unit).
#
# posd sends each sign only if the event loop runs and the committing thread replies. If the event loop or that thread
# hangs, systemd ends posd and starts it again, and open payments continue. A disk that never completes a commit is such
# a hang.

#: Number of signs in each period of the watchdog, so that a slow disk may delay one of them.
SIGNS = 3
#: Seconds between two status notifications without a watchdog.
STATUS_SECONDS = 30.0
#: Seconds to the next attempt if the service manager did not accept the last one.
RETRY_SECONDS = 1.0


def watchdog_pause() -> float | None:
    """Return the seconds between two signs of life, from the environment, or None without a service manager."""
    if not os.environ.get("NOTIFY_SOCKET"):
        return None
    microseconds = os.environ.get("WATCHDOG_USEC", "")
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not microseconds.isdecimal():
        return STATUS_SECONDS
    return int(microseconds) / 1e6 / SIGNS


async def run_watchdog(alive: Callable[[], Awaitable[None]], status: Callable[[], str]) -> None:
    """Send signs of life and the status text until cancelled. Each is sent after `alive` has returned."""
    seconds = watchdog_pause()
    while seconds is not None:
        try:
            await alive()
        except StorageUnavailable as error:
            log.error(  # noqa: TRY400 - the message is the whole story
                "posd.hung", error=str(error), detail="the service manager restarts posd"
            )
            return
        taken = notify(WATCHDOG="1", STATUS=status())
        await tick(seconds if taken else min(seconds, RETRY_SECONDS))
