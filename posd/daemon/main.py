"""The composition root: the only place that constructs and wires (architecture, Parts), and the daemon's life."""

import asyncio
import gc
import os
import re
import secrets
import signal
import ssl
from collections.abc import Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import structlog

from posd import __version__, tls
from posd.api import routes, webhooks
from posd.api.backup import BackupCalls, tell_restores
from posd.api.certificate import Pair, ServedCertificate
from posd.api.metrics.tally import Tally
from posd.api.quarantine import QuarantineCalls
from posd.api.retention import RetentionCalls
from posd.api.service import ServiceCalls
from posd.api.webhooks import WebhookApp
from posd.base.callback_tokens import Channel
from posd.calls.app import LocalApp
from posd.calls.context import Context
from posd.calls.route import served
from posd.config import Config, HeaderError
from posd.daemon import metrics_serving, readiness, watchdog
from posd.daemon.health import Health
from posd.daemon.metrics import Metrics, Parts
from posd.daemon.notify import notify
from posd.daemon.presence import Clock, Presence
from posd.daemon.reload import Reloading
from posd.httpd import sockets
from posd.httpd.alerts import Distrust
from posd.httpd.gate import Gate
from posd.httpd.rejected_traffic import Noise
from posd.httpd.server import Listener
from posd.logs import output
from posd.payments import log as payment_log
from posd.payments.abort import Aborts
from posd.payments.address_changes import AddressChanges
from posd.payments.calls_in_flight import Outstanding
from posd.payments.decide import Operators
from posd.payments.handlers import TransactionCalls
from posd.payments.inbox import Inbox
from posd.payments.intent import Intents
from posd.payments.model import Transaction
from posd.payments.reconcile import Reconciler, Settings
from posd.payments.recovery import recover
from posd.payments.reprocess import PaymentRecords
from posd.payments.schedule import Limits
from posd.payments.search import Searching
from posd.payments.start import Payments
from posd.printing import log as print_log
from posd.printing import recovery, schedule
from posd.printing.decide import PrintOperators
from posd.printing.handlers import PrintJobCalls
from posd.printing.inbox import PrintInbox
from posd.printing.model import PrintJob
from posd.printing.poll import Spooler
from posd.printing.reprocess import PrintRecords
from posd.printing.start import Printing
from posd.printing.turns import Turns
from posd.records.callback_urls import CallbackUrls, KeyFileError, load_keys
from posd.records.reprocess import Reprocessing
from posd.storage.errors import CommitUncertain, StorageUnavailable, StoreError
from posd.storage.opening import refuse_lost, unusable
from posd.storage.store import Store
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces
from posd.terminals.liveness import Liveness
from posd.upkeep.retention import Retention

#: How long calls to terminals may still take when posd is told to stop, in seconds; the whole stop is under 3.
CALL_GRACE_SECONDS = 1.0
#: How long print jobs that are being sent may take before that, in seconds; those in line are not sent any more.
PRINT_GRACE_SECONDS = 0.5
#: How long requests that are being answered may still take after that, in seconds.
REQUEST_GRACE_SECONDS = 0.8

#: Connections of the LAN: many terminals, each with one or two.
MAX_LAN_CONNECTIONS = 512
#: A terminal sends an event every few seconds of a payment; an idle connection is closed after this. Seconds.
LAN_KEEP_ALIVE_SECONDS = 15.0
#: Waiting tills and streams on the local sockets.
MAX_LOCAL_CONNECTIONS = 4096
LOCAL_KEEP_ALIVE_SECONDS = 75.0

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2

#: Where asyncio's words begin to show objects, and with them what they hold.
_OBJECTS = re.compile(r"[:(<]")

log = structlog.get_logger("posd.daemon")


class CannotStart(Exception):
    """The daemon cannot start; the message says why and what to do."""


def now() -> datetime:
    """Return the wall clock; nothing is ever ordered by it."""
    return datetime.now(UTC)


def run(config: Config) -> int:
    """Run the daemon until SIGTERM or SIGINT; return the exit code."""
    output.configure(config.logging.level)
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a certificate to load anew, it would end the process
    try:
        asyncio.run(serve(config))
    except (CannotStart, StoreError, sockets.SocketError, KeyFileError, tls.TlsError) as error:
        log.error("posd.cannot_start", error=str(error))  # noqa: TRY400 - the message is the whole story
        notify(STATUS=f"cannot start: {error}")
        return EXIT_CONFIGURATION if isinstance(error, CannotStart | tls.TlsError) else EXIT_FAILED
    except Exception:
        log.exception("posd.crashed", error_id=secrets.token_hex(8))
        return EXIT_FAILED
    finally:
        output.floods.tell()
        output.flush()
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
    noise.tell()
    output.floods.tell()
    log.info("posd.stopped")


async def _start(config: Config, noise: Noise, stack: AsyncExitStack) -> None:
    """Construct and start all parts; what has to be undone is pushed to the stack, last first."""
    inherited = sockets.Inherited()
    certificate = await ServedCertificate.open(_pair(config), now)
    reload = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _told_to_reload, reload, os.isatty(0))
    _make_state_directory(config.database.path.parent)
    stack.callback(os.close, sockets.lock_directory(config.local_api.directory))
    refuse_lost(config.database.path, config.database.callback_key)
    store = await Store.open(config.database.path, config.database.lock)
    stack.push_async_callback(store.close)
    for log_of in (payment_log, print_log):
        store.hub.listen(log_of.hear)
    try:
        fleet = Fleet(config.terminals, config.profile, now)
    except (OSError, HeaderError) as error:
        raise CannotStart(f"cannot use what the configuration says of a terminal: {error}") from error
    stack.push_async_callback(fleet.close)
    lan_socket = sockets.tcp_socket(config.webhooks.host, config.webhooks.port)
    keys = load_keys(config.database.callback_key)
    port = lan_socket.getsockname()[1]
    callback_urls = CallbackUrls(
        keys, config.webhooks.advertise_host, port, config.webhooks.public_url, config.webhooks.host
    )
    outstanding = Outstanding()
    inbox = Inbox(store, fleet, config.merchant.id, outstanding, now)
    print_inbox = PrintInbox(store, fleet, now)
    channels = (webhooks.transactions(inbox, config.webhooks.max_body_bytes), webhooks.print_jobs(print_inbox))
    distrust = Distrust(now)
    webhook_app = WebhookApp(channels, callback_urls, noise)
    lan = Listener(
        webhook_app,
        lan_socket,
        name="webhooks",
        noise=noise,
        keep_alive_seconds=LAN_KEEP_ALIVE_SECONDS,
        max_connections=MAX_LAN_CONNECTIONS,
        in_turn=True,
        gate=Gate(fleet.hosts),
        tls=certificate.served.context,
        distrust=distrust,
    )
    certificate.on_change = lambda served: lan.use_tls(served.context)
    interfaces = Interfaces()
    interfaces.listen(certificate.look)
    discovery = Discovery(config.discovery, fleet, interfaces, now)
    intents = Intents(fleet, outstanding, ZoneInfo(config.merchant.timezone))
    payments = Payments(store, fleet, intents, callback_urls, outstanding, now)
    aborts = Aborts(store, fleet, outstanding, now)
    searching = Searching(store, fleet, config.merchant.id, outstanding, now)
    reconciler = Reconciler(store, searching, aborts, outstanding, _reconciling(config), now)
    inbox.on_unusable = reconciler.unusable
    turns = Turns()
    printing = Printing(store, fleet, callback_urls, turns, config.print_.document_member, now)
    spooler = Spooler(store, fleet, turns, _polling(config), now)
    print_inbox.on_unusable = spooler.unusable
    fleet.on_return = partial(_returned, reconciler, spooler)
    liveness = Liveness(fleet, config.discovery.check_seconds, reconciler.open_terminals)
    interfaces.listen(fleet.network_changed)
    if not config.discovery.enabled:
        fleet.no_address = "discovery is switched off, and the configuration gives it no base_url"
    presence = Presence(store, config.database.alive, lambda: lan.accepting, Clock(now))
    tally = Tally(store.hub, fleet)
    open_transactions, open_print_jobs = await _recover(store, config.database.path, presence)
    tally.adopt(open_transactions, (job.print_job_id for job in open_print_jobs))
    reconciler.adopt(open_transactions)
    spooler.adopt(open_print_jobs)
    address_changes = AddressChanges(store, interfaces, outstanding, now)
    payments.on_called_back_at = address_changes.called_back_at
    reprocessing = Reprocessing(store, (PrintRecords(print_inbox), PaymentRecords(inbox, outstanding)))
    operators = Operators(store, outstanding, now)
    web = Context(store, now)
    retention = Retention(
        store,
        config.database.path,
        config.database.retention_days,
        lambda identity: bool(outstanding.of(identity)) or printing.under_way(identity),
        now,
    )
    backups = BackupCalls(web, store, config.database.path, keys)
    health = Health(web, lan, discovery if config.discovery.enabled else None, certificate, distrust, presence, now)
    calls = TransactionCalls(web, payments, aborts, reconciler, operators, config.reconcile.first_event_grace_seconds)
    listeners = [lan]
    metrics = Metrics(
        Parts(
            context=web,
            store=store,
            database=config.database.path,
            backups=config.database.backups,
            fleet=fleet,
            health=health,
            presence=presence,
            tally=tally,
            calls=calls,
            webhooks=webhook_app,
            inboxes={Channel.TRANSACTION: inbox, Channel.PRINT: print_inbox},
            searching=searching,
            spooler=spooler,
            noise=noise,
            certificate=certificate,
            distrust=distrust,
            listeners=listeners,
            now=now,
        )
    )
    local = LocalApp(
        served(
            routes.ALL,
            calls,
            PrintJobCalls(web, printing, PrintOperators(store, printing, now)),
            QuarantineCalls(web, reprocessing),
            backups,
            RetentionCalls(retention),
            ServiceCalls(web, fleet, health.checks),
            metrics_serving.MetricsCalls(metrics),
        )
    )
    listeners += _local_listeners(config, local, inherited, noise)
    listeners += metrics_serving.listeners(config.metrics, metrics, noise)
    inherited.close()
    stack.push_async_callback(_close, listeners)
    stack.push_async_callback(printing.close)
    stack.push_async_callback(payments.drain, CALL_GRACE_SECONDS)
    stack.push_async_callback(printing.drain, PRINT_GRACE_SECONDS)
    stack.push_async_callback(spooler.close)
    stack.push_async_callback(reconciler.close)
    stack.callback(store.hub.drain)
    stack.callback(backups.stop)
    stack.callback(retention.stop)
    for listener in listeners:
        listener.start()
    at = f"{config.webhooks.host}:{lan.port}"
    notify(STATUS=f"starting: waiting until {at} answers")
    await readiness.until_it_answers(config.webhooks.host, lan.port, certificate, callback_urls)
    status = partial(readiness.status, at, fleet, reconciler)
    reloading = Reloading(config, fleet, callback_urls, certificate, _pair, status)
    stack.push_async_callback(_cancel, asyncio.create_task(reloading.run(reload), name="reloading"))
    stack.callback(presence.end)
    stack.push_async_callback(_cancel, asyncio.create_task(presence.run(), name="presence"))
    if (textfile := metrics_serving.textfile(config.metrics, metrics)) is not None:
        stack.push_async_callback(_cancel, asyncio.create_task(textfile.run(), name="metrics-textfile"))
    stack.push_async_callback(_cancel, asyncio.create_task(reconciler.run(), name="reconciler"))
    stack.push_async_callback(_cancel, asyncio.create_task(spooler.run(), name="print-spooler"))
    stack.push_async_callback(_cancel, asyncio.create_task(certificate.run(), name="certificate"))
    stack.push_async_callback(_cancel, asyncio.create_task(interfaces.run(), name="interfaces"))
    stack.push_async_callback(_cancel, asyncio.create_task(liveness.run(), name="liveness"))
    stack.push_async_callback(_cancel, asyncio.create_task(address_changes.run(), name="address-changes"))
    stack.push_async_callback(_cancel, asyncio.create_task(retention.run(), name="retention"))
    if config.discovery.enabled:
        browsing = asyncio.create_task(discovery.run(), name="discovery")
        stack.push_async_callback(_cancel, browsing)
    log.info(
        "posd.started",
        version=__version__,
        pid=os.getpid(),
        listen=at,
        directory=str(config.local_api.directory),
        database=str(config.database.path),
        fleet=list(fleet.serials),
    )
    notify(READY="1", STATUS=status())
    stack.push_async_callback(_cancel, asyncio.create_task(watchdog.run(store.alive, status), name="watchdog"))
    await fleet.warm_up()
    gc.freeze()  # what stays for good is not searched for garbage: a search holds everything up for a moment
    gc.enable()


def _pair(config: Config) -> Pair:
    """Return the files of the webhook listener's certificate; what posd made itself it renews itself."""
    made = tls.files(config.database.tls_directory)
    webhooks = config.webhooks
    return Pair(
        webhooks.certificate or made.certificate,
        webhooks.private_key or made.private_key,
        None if webhooks.certificate else config.file,
        partial(tls.called_as, webhooks.host, webhooks.advertise_host),
    )


def _make_state_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {directory} ({error.strerror}); create it, writable for posd") from error


async def _recover(store: Store, path: Path, presence: Presence) -> tuple[list[Transaction], list[PrintJob]]:
    try:
        await presence.begin()  # before anything is recorded: the newest record is its sign of life
        await tell_restores(store)
        return await recover(store, now), await recovery.recover(store, now)
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


def _polling(config: Config) -> schedule.Limits:
    """Return when print jobs are asked for."""
    given = config.print_
    return schedule.Limits(given.poll_first_seconds, given.poll_max_seconds, given.stuck_seconds)


def _returned(reconciler: Reconciler, spooler: Spooler, terminal: str) -> None:
    """Tell both who ask terminals that one of them is back."""
    reconciler.returned(terminal)
    spooler.returned(terminal)


def _local_listeners(config: Config, app: LocalApp, inherited: sockets.Inherited, noise: Noise) -> list[Listener]:
    api = config.local_api
    return [
        Listener(
            app,
            inherited.take(path) or sockets.unix_socket(path, group),
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


def _told_to_reload(reload: asyncio.Event, on_terminal: bool) -> None:
    """Reload (SIGHUP); stop where it means that the terminal posd was started on was closed."""
    if on_terminal and not os.isatty(0):
        signal.raise_signal(signal.SIGTERM)
    else:
        reload.set()


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
            detail=_OBJECTS.split(str(context.get("message")), 1)[0],
            exc_info=error if isinstance(error, BaseException) else None,
        )

    return handle
