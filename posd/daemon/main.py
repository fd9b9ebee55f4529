"""Life of the daemon: start, signals, stop. `daemon.parts` builds the other parts."""

import asyncio
import gc
import os
import re
import secrets
import signal
import ssl
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Final

import structlog

from posd import __version__
from posd.api import routes
from posd.api.certificate import ServedCertificate
from posd.api.documents import Version
from posd.api.feed import FeedStream
from posd.api.maintenance import MaintenanceCalls
from posd.api.report_calls import ReportCalls
from posd.api.terminals import TerminalCalls
from posd.base import files, limits
from posd.base.limits import Limit
from posd.base.redaction import REDACTOR
from posd.base.times import released
from posd.calls.app import LocalApp, connection_refused
from posd.calls.parameters import BoundRoute, served
from posd.clock.clock import WallClock
from posd.config import Config, ConfigError, ConfigProblem, load
from posd.daemon import metrics, reload, sockets, systemd
from posd.daemon.parts import Daemon, certificate_pair
from posd.daemon.reload import InForce
from posd.daemon.status import HealthChecks
from posd.daemon.surroundings import DaemonLoop, Surroundings
from posd.daemon.systemd import notify
from posd.httpd.admission import ListenerPolicy, PeerQuotas, RejectedTraffic, SocketPeer
from posd.httpd.server import HttpListener, give_memory_back, use_one_heap
from posd.logs import output
from posd.payments import record as payments
from posd.payments.handlers import TransactionCalls
from posd.payments.model import Transaction
from posd.payments.reprocess import payment_records
from posd.printing import rows as print_jobs
from posd.printing.handlers import PrintJobCalls
from posd.printing.inbox import print_records
from posd.records import terminals
from posd.records.callback_urls import CallbackUrls, KeyFileError, load_keys
from posd.records.model import Phase
from posd.records.quarantine import Reprocessing
from posd.records.quotas import LimitCounters, limit_reached
from posd.storage import CommitUncertain, StorageUnavailable, StoreError, changes
from posd.storage.connection import refuse_lost, schema_version, unusable
from posd.storage.database_files import closed_to_us
from posd.storage.store import Store
from posd.terminals.identity import Commission, Proof, Trusted
from posd.tls.files import TlsError, files_in
from posd.upkeep.known_ca import KnownCa
from posd.upkeep.retention import Retention

#: A stop waits this long (s) for calls to terminals. The whole stop takes less than 3 seconds.
CALL_GRACE_SECONDS = 1.0
#: Before the calls to terminals, a stop waits this long (s) for print jobs that are being sent. Queued print jobs are
#: not sent.
PRINT_GRACE_SECONDS = 0.5
#: At its end, a stop waits this long (s) for open requests.
REQUEST_GRACE_SECONDS = 0.8

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2

#: Text for the log if the configuration has a mistake at the start.
LAST_ONE = "the last good configuration is in use; correct it (posd config check), and reload"
#: Pattern of the place in a message of asyncio from which the message shows objects, which may contain data.
_OBJECTS = re.compile(r"[:(<]")

#: Step of the stop: a function or a coroutine function.
Step = Callable[[], Awaitable[None] | None]

#: Seconds after which a program with too many connections may retry.
TOO_MANY_SECONDS: Final = 1
LOCAL_KEEP_ALIVE_SECONDS: Final = 75.0
NOT_ON_THE_FEED_SOCKET: Final = (
    "this socket serves only GET /v1/feed, /v1/health and /v1/version; the till socket serves the rest"
)

log = structlog.get_logger("posd.daemon")


def run(config: Config, refused: tuple[ConfigProblem, ...] = ()) -> int:
    """Run the daemon until SIGTERM or SIGINT. Return the exit code.

    `refused`: problems of a newer configuration, if `config` is the last working configuration.
    """
    use_one_heap()
    surroundings = Surroundings()
    output.configure(config.logging.level, surroundings.now)
    os.umask(0o077)
    # Ignore SIGHUP until `_start` sets its handler, because by default SIGHUP ends the process.
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        _give_up_root(config.database.path)
        with asyncio.Runner(loop_factory=DaemonLoop) as runner:
            runner.run(serve(config, surroundings, refused))
    except (ConfigError, StoreError, sockets.SocketError, KeyFileError, TlsError) as error:
        words = _why(error, config.database.path)
        log.error("posd.cannot_start", error=words)  # noqa: TRY400 - the traceback adds nothing to the message
        notify(STATUS=f"cannot start: {words}")
        return EXIT_CONFIGURATION if isinstance(error, ConfigError | TlsError) else EXIT_FAILED
    except Exception:
        log.exception("posd.crashed", error_id=secrets.token_hex(8))
        return EXIT_FAILED
    finally:
        output.floods.tell()
        output.flush()
    return EXIT_OK


def _why(error: Exception, database: Path) -> str:
    """Return why posd cannot start.

    If posd has no access to some of its files, for example after a copy by root, the text names these files.
    """
    closed = closed_to_us(database) if isinstance(error, StoreError | KeyFileError | TlsError) else []
    if not closed:
        return str(error)
    names, user = ", ".join(map(str, closed)), files.user_name(os.geteuid())
    what = f"it runs as {user}, and {names} {'belongs' if len(closed) == 1 else 'belong'} to another user"
    return f"{str(error).partition('; ')[0]}; {what}: sudo chown -R {user} {database.parent}"


def _give_up_root(database: Path) -> None:
    try:
        files.give_up_root(database)
    except OSError as error:
        raise StoreError(f"cannot use {database.parent} ({error.strerror})") from error


async def serve(config: Config, surroundings: Surroundings, refused: tuple[ConfigProblem, ...] = ()) -> None:
    """Start all parts, wait for a signal, stop all in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    noise = RejectedTraffic()
    loop.set_exception_handler(partial(_report_fault, noise))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told_to_stop, stop, number)
    async with AsyncExitStack() as stack:
        await _start(config, refused, surroundings, noise, stack)
        await stop.wait()
        notify(STOPPING="1", STATUS="stopping")
    noise.tell()
    output.floods.tell()
    log.info("posd.stopped")


async def _start(
    config: Config,
    refused: tuple[ConfigProblem, ...],
    surroundings: Surroundings,
    noise: RejectedTraffic,
    stack: AsyncExitStack,
) -> None:
    """Build and start all parts, in this order. Push the steps of the stop to the stack."""
    inherited = sockets.inherited()
    asked = asyncio.Event()
    in_force = InForce(config, surroundings.now, surroundings.elapsed)
    if refused:
        in_force.refuse(refused)
        log.error("config.refused", error=str(ConfigError(refused)), detail=LAST_ONE)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _told_to_reload, asked, os.isatty(0))
    daemon = await _open(in_force, surroundings, noise, stack)
    await _take_over(daemon, stack)
    retention, health, shown = _local_api(daemon, inherited, stack)
    for listener in daemon.listeners:
        listener.start()
    notify(STATUS=f"starting: waiting until {daemon.listen} answers")
    await systemd.until_it_answers(
        config.webhooks.listen.host, daemon.listener.port, daemon.certificate, daemon.callback_urls
    )
    _in_background(stack, "reloading", _reload_on_request(daemon, asked))
    _run_all(daemon, retention, health, shown, stack)
    log.info(
        "posd.started",
        version=__version__,
        pid=os.getpid(),
        listen=daemon.listen,
        directory=str(config.local_api.directory),
        database=str(config.database.path),
        fleet=list(daemon.fleet.serials),
    )
    notify(READY="1", STATUS=daemon.status_line())
    _in_background(stack, "watchdog", systemd.run_watchdog(daemon.store.alive, daemon.status_line))
    if not refused:
        await reload.keep(config)
    give_memory_back()  # free the memory that only the start needed, about a megabyte
    gc.freeze()  # permanent objects are excluded from garbage collection, because a collection blocks the loop
    gc.enable()


@contextmanager
def _reading(database: Path) -> Iterator[None]:
    """Raise StoreError for data that cannot be read at the start, such as a row that was damaged on disk."""
    try:
        yield
    except (StorageUnavailable, CommitUncertain, ValueError, TypeError, KeyError, AttributeError) as error:
        raise unusable(database, error) from error


async def _open(in_force: InForce, surroundings: Surroundings, noise: RejectedTraffic, stack: AsyncExitStack) -> Daemon:
    """Open the database, the certificate and the port for terminals. Return the parts."""
    config, now = in_force.config, surroundings.now
    _make_state_directory(config.database.path.parent)
    stack.callback(os.close, sockets.lock_directory(config.local_api.directory))
    refuse_lost(config.database.path, config.database.callback_key, config.database.witness)
    store = await Store.open(config.database.path, config.database.lock, now)
    stack.push_async_callback(store.close)
    limit = timedelta(seconds=config.clock.max_step_seconds)
    clock = WallClock(store, limit, released(), now, surroundings.elapsed, surroundings.kernel_state)
    with _reading(config.database.path):
        await clock.begin()
        used = config.database.witness.exists() or await store.read(changes.last_seq) > 0
    known_ca = KnownCa(store, files_in(config.database.tls_directory), now)
    pair = certificate_pair(config, surroundings)
    certificate = await ServedCertificate.open(pair, now, sure=clock.is_sure, known_ca=known_ca)
    try:
        daemon = Daemon(surroundings, store, clock, certificate, in_force, noise)
    except OSError as error:
        raise ConfigError(reload.problems(error, config.file)) from error
    stack.push_async_callback(daemon.fleet.close)
    given, host = config.webhooks, config.webhooks.listen.host
    listening = surroundings.tcp_socket(host, given.listen.port, "webhooks.listen")
    REDACTOR.keys = keys = load_keys(config.database.callback_key, may_make=not used)
    port = listening.getsockname()[1]
    daemon.build(listening, CallbackUrls(keys, given.advertise_host, port, given.public_url, host, surroundings.facing))
    return daemon


async def _take_over(daemon: Daemon, stack: AsyncExitStack) -> None:
    """Load the state that an earlier daemon stored, and pass it to the parts.

    Raise StoreError for an unreadable row.
    """
    store, now = daemon.store, daemon.now
    with _reading(daemon.config.database.path):
        await daemon.presence.begin()  # first, because the newest stored change is the last sign of life
        await daemon.restore_guard.begin()
        await daemon.unread.begin()
        open_payments = await payments.recover(store, now)
        open_jobs = await print_jobs.recover(store, now)
        of_terminals = await _stored_of_terminals(store, open_payments)
    stack.callback(daemon.restore_guard.end)
    daemon.counters.adopt(open_payments, (job.print_job_id for job in open_jobs))
    daemon.reconciler.adopt(open_payments)
    daemon.fleet.remember(*of_terminals)
    daemon.fleet.network_changed()  # the state of each terminal is unknown, so posd probes it
    daemon.spooler.adopt(open_jobs)


def _run_all(
    daemon: Daemon, retention: Retention, health: HealthChecks, shown: metrics.Metrics, stack: AsyncExitStack
) -> None:
    """Run the tasks of all parts until the daemon stops."""
    _at_the_stop(stack, daemon.presence.end, daemon.clock.keep)
    for name, work in (
        ("database-file", partial(daemon.store.watch, daemon.surroundings.watch_folder)),
        ("witness", daemon.restore_guard.run),
        ("clock", daemon.clock.run),
        ("presence", daemon.presence.run),
        ("metrics-textfile", shown.write_textfile),
        ("reconciler", daemon.reconciler.run),
        ("print-spooler", daemon.spooler.run),
        ("certificate", daemon.certificate.run),
        ("interfaces", daemon.interfaces.run),
        ("liveness", daemon.liveness.run),
        ("address-changes", daemon.address_changes.run),
        ("identity-conflicts", daemon.identity_conflicts.run),
        ("unread", daemon.unread.run),
        ("health", health.run),
        ("retention", retention.run),
        ("discovery", daemon.discovery.run if daemon.discovery else None),
        ("memory", daemon.memory.run),
    ):
        if work is not None:
            _in_background(stack, name, work())


def _at_the_stop(stack: AsyncExitStack, *steps: Step) -> None:
    """Push the steps of the stop, in this order. Each step runs even if an earlier step failed."""

    async def do(step: Step) -> None:
        done = step()
        if done is not None:
            await done

    for step in reversed(steps):
        stack.push_async_callback(do, step)


def _in_background(stack: AsyncExitStack, name: str, work: Coroutine[Any, Any, None]) -> None:
    """Run a task until the daemon stops."""
    task = asyncio.create_task(work, name=name)

    async def cancel() -> None:
        task.cancel()
        await asyncio.wait({task})

    stack.push_async_callback(cancel)


def _make_state_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {directory} ({error.strerror}); create it, writable for posd") from error


async def _stored_of_terminals(
    store: Store, open_payments: list[Transaction]
) -> tuple[dict[str, Trusted], dict[str, Commission]]:
    """Return the trusted address and the commissioning of each terminal.

    Without a trusted address, return the address of the terminal's open payment.
    """
    sent = (item for item in open_payments if item.sent_to is not None and item.phase is not Phase.FINAL)
    asked = {item.terminal: Trusted(item.sent_to or "", Proof.NONE, item.created_at) for item in sent}
    return asked | await store.read(terminals.trusted_ones), await store.read(terminals.commissions)


async def _reload_on_request(daemon: Daemon, asked: asyncio.Event) -> None:
    """Reload the configuration on each request, until cancelled."""
    while True:
        await asked.wait()
        asked.clear()
        notify(RELOADING="1", MONOTONIC_USEC=str(time.monotonic_ns() // 1000), STATUS="reloading")
        await _reload(daemon)
        await daemon.certificate.reload()
        notify(READY="1", STATUS=daemon.status_line())


async def _reload(daemon: Daemon) -> None:
    in_force, running = daemon.in_force, daemon.config
    try:
        new = await asyncio.to_thread(load, running.file)
        clients = await asyncio.to_thread(daemon.fleet.make_clients, new.terminals)
    except (ConfigError, OSError) as error:
        detail = "the earlier configuration stays in use; correct it (posd config check), and reload again"
        log.error("config.refused", error=str(error), detail=detail)  # noqa: TRY400 - the message is for people
        in_force.refuse(reload.problems(error, running.file))
        return
    changed = reload.taken_up(in_force.config, new)
    output.set_level(new.logging.level)
    daemon.callback_urls.use(new.webhooks.advertise_host, new.webhooks.public_url)
    daemon.certificate.use(certificate_pair(reload.applied(running, new), daemon.surroundings))
    daemon.fleet.adopt(clients, new.profiles)
    keys = reload.needs_restart(running, new)
    in_force.load(new, keys)
    await reload.keep(new)
    log.info("config.loaded", detail="; ".join(changed) or "the same as before", fleet=list(daemon.fleet.serials))
    if keys:
        log.warning("config.needs_restart", detail=reload.restart_words(keys))


async def _close(listeners: list[HttpListener]) -> None:
    await asyncio.gather(*(listener.close(REQUEST_GRACE_SECONDS) for listener in listeners))


def _told_to_reload(asked: asyncio.Event, on_terminal: bool) -> None:
    """Reload on SIGHUP. Stop instead if the window (tty) of posd was closed."""
    if on_terminal and not os.isatty(0):
        signal.raise_signal(signal.SIGTERM)
    else:
        asked.set()


def _told_to_stop(stop: asyncio.Event, number: signal.Signals) -> None:
    log.info("posd.stopping", signal=number.name)
    stop.set()


def _report_fault(noise: RejectedTraffic, _loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
    """Count an error of the event loop that a peer caused. Log any other error, with an id."""
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


# Listeners of tills and operators, and the handlers of their calls.


def _local_api(
    daemon: Daemon, inherited: sockets.InheritedSockets, stack: AsyncExitStack
) -> tuple[Retention, HealthChecks, metrics.Metrics]:
    """Build the calls of tills and operators, and add their listeners to the daemon. Raise SocketError.

    Return the parts that run as tasks.
    """
    config, store, clock, context = daemon.config, daemon.store, daemon.clock, daemon.context
    days, zone = config.database.retention_days, config.merchant.timezone
    retention = Retention(store, days, daemon.is_calling, daemon.now, lambda: clock.confirmed, lambda: clock.doubt)
    version = Version(
        version=__version__,
        api="v1",
        schema=schema_version(),
        timezone=zone,
        currency=config.merchant.currency,
        language=config.local_api.language,
    )
    health = HealthChecks(daemon, version)
    calls = TransactionCalls(context, daemon.payments, daemon.aborts, daemon.reconciler, config)
    shown = metrics.Metrics(daemon, health, calls)
    records = (print_records(daemon.print_inbox), payment_records(daemon.inbox, daemon.parts.outstanding))
    reprocessing = Reprocessing(store, records)
    keys, guard = daemon.callback_urls.keys, daemon.restore_guard
    maintenance = MaintenanceCalls(context, keys, guard, retention, reprocessing, clock)
    all_calls = served(
        routes.ALL,
        calls,
        PrintJobCalls(context, daemon.printing, daemon.spooler),
        maintenance,
        FeedStream(context, lambda: daemon.in_force.config.relay.metadata),
        ReportCalls(context, store, clock, zone, config.reconcile.first_event_grace_seconds),
        TerminalCalls(context, store, daemon.fleet, daemon.reconciler),
        shown,
        health,
    )
    daemon.listeners += _local_listeners(daemon, all_calls, inherited)
    daemon.listeners += shown.listeners()
    sockets.refuse_unused(inherited)
    _at_the_stop(
        stack,
        retention.stop,
        maintenance.stop_backup,
        store.hub.drain,  # end the waits of tills
        daemon.reconciler.close,
        daemon.spooler.close,
        partial(daemon.printing.drain, PRINT_GRACE_SECONDS),
        partial(daemon.payments.drain, CALL_GRACE_SECONDS),
        daemon.printing.close,
        partial(_close, daemon.listeners),
    )
    return retention, health, shown


def _local_listeners(
    daemon: Daemon, calls: tuple[BoundRoute, ...], inherited: sockets.InheritedSockets
) -> list[HttpListener]:
    api, quotas = daemon.config.local_api, daemon.quotas
    places = limits.places(daemon.surroundings.descriptors(limits.DESCRIPTORS))
    app = LocalApp(calls, quotas.in_flight)
    feed = LocalApp(tuple(call for call in calls if call[0].feed), quotas.in_flight, NOT_ON_THE_FEED_SOCKET)
    doors = [
        (app, api.till_socket, api.till_group, False, places.tills, limits.CONNECTIONS_OF_TILLS),
        (app, api.admin_socket, api.admin_group, True, places.operators, limits.CONNECTIONS_OF_OPERATORS),
        (feed, api.feed_socket, api.feed_group, False, places.feed, limits.CONNECTIONS_OF_FEED),
    ]
    listeners = []
    for served_app, path, group, admin, most, limit in doors:
        try:
            listening = sockets.take(inherited, path, group) or daemon.surroundings.unix_socket(path, group)
        except sockets.SocketError as error:
            if served_app is not feed:
                raise
            (log.info if isinstance(error, sockets.NoGroup) else log.warning)("feed.no_socket", error=str(error))
            continue
        policy = ListenerPolicy(
            name=path.name,
            keep_alive_seconds=LOCAL_KEEP_ALIVE_SECONDS,
            max_connections=most,
            state={"admin": admin, "feed": served_app is feed},
        )
        too_many = partial(_too_many, quotas.reached, limit)
        peers = PeerQuotas(min(places.process, most // 2), places.user, too_many)
        listeners.append(HttpListener(served_app, listening, policy, daemon.noise, daemon.now, peers))
    return listeners


def _too_many(reached: LimitCounters, of_socket: Limit, which: str, sender: SocketPeer) -> bytes:
    """Count and log a sender with too many connections. Return the response to its next connection."""
    limit = {"process": limits.CONNECTIONS_OF_PROCESS, "user": limits.CONNECTIONS_OF_USER}.get(which, of_socket)
    reached.note(limit, pid=sender.pid, uid=sender.uid)
    return connection_refused(limit_reached(limit, "cannot take this connection", TOO_MANY_SECONDS))
