"""The composition root: the only place that constructs and wires (design 3), and the daemon's life."""

import asyncio
import os
import secrets
import signal
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from posd import __version__, logs, sockets, tls
from posd.config import Config, HeaderError
from posd.core.transactions import Transaction
from posd.core.watching import Limits
from posd.notify import notify
from posd.services.aborts import Aborts
from posd.services.callback_urls import CallbackUrls, KeyFileError, load_keys
from posd.services.inbox import Inbox
from posd.services.intents import Intents
from posd.services.operators import Operators
from posd.services.outstanding import Outstanding
from posd.services.payments import Payments
from posd.services.reconciler import Reconciler, Settings
from posd.services.recovery import recover
from posd.services.reprocess import Reprocessing
from posd.services.searching import Searching
from posd.store.errors import CommitUncertain, StorageUnavailable, StoreError
from posd.store.opening import refuse_lost, unusable
from posd.store.store import Store
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.web.backup import BackupCalls, tell_restores
from posd.web.context import Context
from posd.web.health import Health
from posd.web.local import LocalApp
from posd.web.noise import Noise
from posd.web.quarantine import QuarantineCalls
from posd.web.server import Listener
from posd.web.service import ServiceCalls
from posd.web.transactions import TransactionCalls
from posd.web.webhooks import WebhookApp

#: How long calls to terminals may still take when posd is told to stop, in seconds; the whole stop is under 3.
CALL_GRACE_SECONDS = 1.0
#: How long requests that are being answered may still take after that, in seconds.
REQUEST_GRACE_SECONDS = 0.8

#: Connections of the LAN: many terminals, each with one or two; and what one address may hold of them.
MAX_LAN_CONNECTIONS = 512
MAX_CONNECTIONS_OF_ADDRESS = 64
#: A terminal sends an event every few seconds of a payment; an idle connection is closed after this. Seconds.
LAN_KEEP_ALIVE_SECONDS = 15.0
#: Waiting tills and streams on the local sockets.
MAX_LOCAL_CONNECTIONS = 4096
LOCAL_KEEP_ALIVE_SECONDS = 75.0

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2

log = structlog.get_logger("posd.daemon")


class CannotStart(Exception):
    """The daemon cannot start; the message says why and what to do."""


def now() -> datetime:
    """Return the wall clock; nothing is ever ordered by it."""
    return datetime.now(UTC)


def run(config: Config) -> int:
    """Run the daemon until SIGTERM or SIGINT; return the exit code."""
    logs.configure(config.logging.level)
    os.umask(0o077)
    try:
        asyncio.run(serve(config))
    except (CannotStart, StoreError, sockets.SocketError, KeyFileError, tls.TlsError) as error:
        log.error("posd.cannot_start", error=str(error))  # noqa: TRY400 - the message is the whole story
        notify(STATUS=f"cannot start: {error}")
        return EXIT_CONFIGURATION if isinstance(error, CannotStart | tls.TlsError) else EXIT_FAILED
    return EXIT_OK


async def serve(config: Config) -> None:
    """Start everything, wait for a signal, stop everything in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    noise = Noise()
    loop.set_exception_handler(_exception_handler(noise))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told_to_stop, stop, number)
    async with AsyncExitStack() as stack:
        await _start(config, noise, stack)
        await stop.wait()
        notify(STOPPING="1", STATUS="stopping")
    log.info("posd.stopped")


async def _start(config: Config, noise: Noise, stack: AsyncExitStack) -> None:
    """Construct and start all parts; what has to be undone is pushed to the stack, last first."""
    certificate, context = _server_tls(config)
    _make_state_directory(config.database.path.parent)
    stack.callback(os.close, sockets.lock_directory(config.local_api.directory))
    refuse_lost(config.database.path, config.database.callback_key)
    store = await Store.open(config.database.path, config.database.lock)
    stack.push_async_callback(store.close)
    try:
        fleet = Fleet(config.terminals)
    except (OSError, HeaderError) as error:
        raise CannotStart(f"cannot use what the configuration says of a terminal: {error}") from error
    stack.push_async_callback(fleet.close)
    lan_socket = sockets.tcp_socket(config.webhooks.host, config.webhooks.port)
    keys = load_keys(config.database.callback_key)
    callback_urls = CallbackUrls(
        keys, config.webhooks.advertise_host, lan_socket.getsockname()[1], config.webhooks.public_url
    )
    outstanding = Outstanding()
    inbox = Inbox(store, fleet, config.merchant.id, outstanding, now)
    webhooks = WebhookApp(inbox, callback_urls, noise, config.webhooks.max_body_bytes)
    lan = Listener(
        webhooks,
        lan_socket,
        name="webhooks",
        noise=noise,
        keep_alive_seconds=LAN_KEEP_ALIVE_SECONDS,
        max_connections=MAX_LAN_CONNECTIONS,
        max_per_address=MAX_CONNECTIONS_OF_ADDRESS,
        tls=context,
    )
    discovery = Discovery(config.discovery, fleet, now)
    intents = Intents(fleet, config.profile, outstanding, ZoneInfo(config.merchant.timezone))
    payments = Payments(store, fleet, intents, callback_urls, outstanding, now)
    aborts = Aborts(store, fleet, config.profile, outstanding, now)
    searching = Searching(store, fleet, config.profile, config.merchant.id, outstanding, now)
    reconciler = Reconciler(store, searching, aborts, outstanding, _reconciling(config), now)
    fleet.on_return = reconciler.returned
    inbox.on_unusable = reconciler.unusable
    reconciler.adopt(await _recover(store, config.database.path))
    reprocessing = Reprocessing(store, inbox, outstanding, now)
    operators = Operators(store, outstanding, now)
    web = Context(store, now)
    backups = BackupCalls(web, store, config.database.path, keys)
    health = Health(web, lan, discovery if config.discovery.enabled else None, certificate, now)
    local = LocalApp(
        TransactionCalls(
            web, payments, aborts, reconciler, operators, config.reconcile.first_event_grace_seconds
        ).routes
        + QuarantineCalls(web, reprocessing).routes
        + backups.routes
        + ServiceCalls(web, fleet, health.checks).routes
    )
    listeners = [lan, *_local_listeners(config, local, noise)]
    stack.push_async_callback(_close, listeners)
    stack.push_async_callback(payments.drain, CALL_GRACE_SECONDS)
    stack.push_async_callback(reconciler.close)
    stack.callback(store.hub.drain)
    stack.callback(backups.stop)
    for listener in listeners:
        listener.start()
    stack.push_async_callback(_cancel, asyncio.create_task(reconciler.run(), name="reconciler"))
    if config.discovery.enabled:
        browsing = asyncio.create_task(discovery.run(), name="discovery")
        stack.push_async_callback(_cancel, browsing)
    log.info(
        "posd.started",
        version=__version__,
        pid=os.getpid(),
        listen=f"{config.webhooks.host}:{lan.port}",
        directory=str(config.local_api.directory),
        database=str(config.database.path),
        fleet=list(fleet.serials),
    )
    notify(READY="1", STATUS=f"listening on {config.webhooks.host}:{lan.port}")


def _server_tls(config: Config) -> tuple[Path, ssl.SSLContext]:
    """Return the webhook listener's certificate and context. Raise TlsError, which says how to get one."""
    made = tls.files(config.database.tls_directory)
    certificate = config.webhooks.certificate or made.certificate
    private_key = config.webhooks.private_key or made.private_key
    return certificate, tls.server_context(certificate, private_key)


def _make_state_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {directory} ({error.strerror}); create it, writable for posd") from error


async def _recover(store: Store, path: Path) -> list[Transaction]:
    try:
        await tell_restores(store)
        return await recover(store, now)
    except (StorageUnavailable, CommitUncertain, ValueError, TypeError, AttributeError) as error:
        raise unusable(path, error) from error  # the latter three: a row that was damaged on the disk


def _reconciling(config: Config) -> Settings:
    """Return the reconciler's settings."""
    given = config.reconcile
    return Settings(
        Limits(given.first_event_grace_seconds, given.stall_seconds, given.stall_after_request_seconds),
        settle=given.settle_seconds,
        probe_with_abort=given.probe_with_abort,
    )


def _local_listeners(config: Config, app: LocalApp, noise: Noise) -> list[Listener]:
    api = config.local_api
    return [
        Listener(
            app,
            sockets.unix_socket(path, group),
            name=path.name,
            noise=noise,
            keep_alive_seconds=LOCAL_KEEP_ALIVE_SECONDS,
            max_connections=MAX_LOCAL_CONNECTIONS,
            state={"admin": admin},
        )
        for path, group, admin in (
            (api.till_socket, api.till_group, False),
            (api.admin_socket, api.admin_group, True),
        )
    ]


async def _close(listeners: list[Listener]) -> None:
    await asyncio.gather(*(listener.close(REQUEST_GRACE_SECONDS) for listener in listeners))


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


def _told_to_stop(stop: asyncio.Event, number: signal.Signals) -> None:
    log.info("posd.stopping", signal=number.name)
    stop.set()


def _exception_handler(noise: Noise) -> Any:
    """Return the loop's handler: what strangers cause is counted, what is ours is logged once with its id."""

    def handle(_loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ssl.SSLError | ConnectionError | TimeoutError):
            noise.note("connection_broke", "unknown", type(error).__name__)
            return
        log.error(
            "posd.internal_error",
            error_id=secrets.token_hex(8),
            detail=str(context.get("message")),
            exc_info=error if isinstance(error, BaseException) else None,
        )

    return handle
