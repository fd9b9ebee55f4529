"""The daemon's life: started, told to stop, stopped. What it is made of is built in `daemon.build`."""

import asyncio
import gc
import os
import re
import secrets
import signal
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from posd import __version__, tls
from posd.api.certificate import ServedCertificate
from posd.api.maintenance import tell_restores
from posd.api.metrics import Tally
from posd.base.redaction import REDACTOR
from posd.config import Config
from posd.daemon import build, metrics, sockets, systemd, watchdog
from posd.daemon.build import CannotStart
from posd.daemon.in_force import InForce
from posd.daemon.memory import Memory, use_one_heap
from posd.daemon.presence import Presence
from posd.daemon.reload import Reloading
from posd.daemon.surroundings import Surroundings
from posd.daemon.systemd import notify
from posd.httpd.admission import RejectedTraffic
from posd.httpd.server import Listener, give_memory_back
from posd.logs import output
from posd.payments import recovery
from posd.payments.model import Transaction
from posd.printing import recovery as print_recovery
from posd.printing.model import PrintJob
from posd.records import commissions, terminal_addresses
from posd.records.callback_urls import CallbackUrls, KeyFileError, load_keys
from posd.records.model import Phase
from posd.storage import database_id
from posd.storage.connection import refuse_lost, unusable
from posd.storage.errors import CommitUncertain, StorageUnavailable, StoreError
from posd.storage.store import Store
from posd.terminals.commission import Commission
from posd.terminals.identity import Proof, Trusted

#: How long calls to terminals may still take when posd is told to stop, in seconds; the whole stop is under 3.
CALL_GRACE_SECONDS = 1.0
#: How long print jobs that are being sent may take before that, in seconds; those in line are not sent any more.
PRINT_GRACE_SECONDS = 0.5
#: How long requests that are being answered may still take after that, in seconds.
REQUEST_GRACE_SECONDS = 0.8

EXIT_OK = 0
EXIT_FAILED = 1
EXIT_CONFIGURATION = 2

#: Where asyncio's words begin to show objects, and with them what they hold.
_OBJECTS = re.compile(r"[:(<]")

#: Something to be done at the stop, at once or over a while.
Step = Callable[[], Awaitable[None] | None]

log = structlog.get_logger("posd.daemon")


def run(config: Config) -> int:
    """Run the daemon until SIGTERM or SIGINT; return the exit code."""
    use_one_heap()
    surroundings = Surroundings()
    output.configure(config.logging.level, surroundings.now)
    os.umask(0o077)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is a certificate to load anew, it would end the process
    try:
        asyncio.run(serve(config, surroundings))
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


async def serve(config: Config, surroundings: Surroundings) -> None:
    """Start everything, wait for a signal, stop everything in order."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    noise = RejectedTraffic()
    loop.set_exception_handler(_exception_handler(noise))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _told_to_stop, stop, number)
    async with AsyncExitStack() as stack:
        await _start(config, surroundings, noise, stack)
        await stop.wait()
        notify(STOPPING="1", STATUS="stopping")
    noise.tell()
    output.floods.tell()
    log.info("posd.stopped")


async def _start(config: Config, surroundings: Surroundings, noise: RejectedTraffic, stack: AsyncExitStack) -> None:
    """Build and start all parts, in this order; what has to be undone is pushed to the stack."""
    now = surroundings.now
    inherited = sockets.Inherited()
    reload = asyncio.Event()
    in_force = InForce(now, surroundings.elapsed)
    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _told_to_reload, reload, os.isatty(0))
    _make_state_directory(config.database.path.parent)
    stack.callback(os.close, sockets.lock_directory(config.local_api.directory))
    refuse_lost(config.database.path, config.database.callback_key, config.database.witness)
    store = await Store.open(config.database.path, config.database.lock, now)
    stack.push_async_callback(store.close)
    clock = await build.wall_clock(config, surroundings, store)
    pair = partial(build.pair, surroundings=surroundings)
    certificate = await ServedCertificate.open(pair(config), now, sure=lambda: clock.sure)
    clock.listen(certificate.look)

    around = build.terminals(config, surroundings, clock)
    stack.push_async_callback(around.fleet.close)
    listening = surroundings.tcp_socket(config.webhooks.host, config.webhooks.port, "webhooks.listen")
    used = config.database.witness.exists() or await store.read(database_id.last_seq) > 0
    keys = load_keys(config.database.callback_key, may_make=not used)
    REDACTOR.set_keys(keys)
    callback_urls = _callback_urls(config, surroundings, listening.getsockname()[1], keys)
    intake = build.intake(config)
    base = build.Base(config, surroundings, store, clock, around, callback_urls, keys, noise, intake, in_force)
    paying = build.payments(base)
    prints = build.printing(base, paying.unseen.missing_records)
    door = build.webhook_door(base, certificate, paying, prints, listening)
    presence = build.presence(base, door)
    tally = Tally(store.hub, around.fleet)
    liveness = build.liveness(base, paying)

    open_payments, open_jobs = await _recover(store, config.database.path, presence, paying, now)
    stack.callback(paying.unseen.end)
    tally.adopt(open_payments, (job.print_job_id for job in open_jobs))
    paying.reconciler.adopt(open_payments)
    around.fleet.addresses.remember(await _trusted(store, config.database.path, open_payments))
    around.fleet.remember(await _commissions(store, config.database.path))
    prints.spooler.adopt(open_jobs)

    doors = build.local_doors(base, paying, prints, door, presence, tally, inherited)
    inherited.close()
    _at_the_stop(
        stack,
        doors.retention.stop,
        doors.backups.stop,
        store.hub.drain,  # waiting tills hear that posd stops
        paying.reconciler.close,
        prints.spooler.close,
        partial(prints.printing.drain, PRINT_GRACE_SECONDS),
        partial(paying.payments.drain, CALL_GRACE_SECONDS),
        prints.printing.close,
        partial(_close, doors.listeners),
    )
    for listener in doors.listeners:
        listener.start()
    at = f"{config.webhooks.host}:{door.listener.port}"
    notify(STATUS=f"starting: waiting until {at} answers")
    await systemd.until_it_answers(config.webhooks.host, door.listener.port, certificate, callback_urls)

    status = partial(systemd.status, at, around.fleet, paying.reconciler, in_force)
    reloading = Reloading(config, in_force, around.fleet, callback_urls, certificate, pair, status)
    _in_background(stack, "reloading", reloading.run(reload))
    _at_the_stop(stack, presence.end, clock.keep)
    textfile = metrics.textfile(config.metrics, doors.metrics)
    for name, work in (
        ("database-file", partial(store.watch, surroundings.told)),
        ("witness", paying.unseen.run),
        ("clock", clock.run),
        ("presence", presence.run),
        ("metrics-textfile", textfile.run if textfile else None),
        ("reconciler", paying.reconciler.run),
        ("print-spooler", prints.spooler.run),
        ("certificate", certificate.run),
        ("interfaces", around.interfaces.run),
        ("liveness", liveness.run),
        ("address-changes", paying.address_changes.run),
        ("identity-conflicts", paying.identity_conflicts.run),
        ("unread", paying.unread.run),
        ("retention", doors.retention.run),
        ("discovery", around.discovery.run if around.discovery else None),
        ("memory", Memory(store).run),
    ):
        if work is not None:
            _in_background(stack, name, work())
    log.info(
        "posd.started",
        version=__version__,
        pid=os.getpid(),
        listen=at,
        directory=str(config.local_api.directory),
        database=str(config.database.path),
        fleet=list(around.fleet.serials),
    )
    notify(READY="1", STATUS=status())
    _in_background(stack, "watchdog", watchdog.run(store.alive, status))
    await around.fleet.warm_up()
    give_memory_back()  # what the start alone has used: about a megabyte
    gc.freeze()  # what stays for good is not searched for garbage: a search holds everything up for a moment
    gc.enable()


def _at_the_stop(stack: AsyncExitStack, *steps: Step) -> None:
    """Have these done at the stop, in this order, each also where those before it failed."""

    async def do(step: Step) -> None:
        done = step()
        if done is not None:
            await done

    for step in reversed(steps):
        stack.push_async_callback(do, step)


def _in_background(stack: AsyncExitStack, name: str, work: Coroutine[Any, Any, None]) -> None:
    """Run it until the stop."""
    task = asyncio.create_task(work, name=name)

    async def cancel() -> None:
        task.cancel()
        await asyncio.wait({task})

    stack.push_async_callback(cancel)


def _callback_urls(config: Config, surroundings: Surroundings, port: int, keys: tuple[bytes, ...]) -> CallbackUrls:
    given = config.webhooks
    return CallbackUrls(keys, given.advertise_host, port, given.public_url, given.host, surroundings.facing)


def _make_state_directory(directory: Path) -> None:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make {directory} ({error.strerror}); create it, writable for posd") from error


async def _recover(
    store: Store, path: Path, presence: Presence, paying: build.PaymentParts, now: Callable[[], datetime]
) -> tuple[list[Transaction], list[PrintJob]]:
    """Take over what an earlier daemon left; return what is open. Raise StoreError where a row cannot be read."""
    try:
        await presence.begin()  # before anything is recorded: the newest record is its sign of life
        await paying.unseen.begin()
        await paying.unread.begin()
        await tell_restores(store)
        return await recovery.recover(store, now), await print_recovery.recover(store, now)
    except (StorageUnavailable, CommitUncertain, ValueError, TypeError, AttributeError) as error:
        raise unusable(path, error) from error  # the latter three: a row that was damaged on the disk


async def _trusted(store: Store, path: Path, open_payments: list[Transaction]) -> dict[str, Trusted]:
    """Return where each terminal was trusted last; where that is not known, where its open payment was sent.

    Raise StoreError where a row cannot be read.
    """
    sent = (item for item in open_payments if item.sent_to is not None and item.phase is not Phase.FINAL)
    asked = {item.terminal: Trusted(item.sent_to or "", Proof.NONE, item.created_at) for item in sent}
    try:
        return asked | await store.read(terminal_addresses.read)
    except (StorageUnavailable, ValueError, TypeError) as error:
        raise unusable(path, error) from error


async def _commissions(store: Store, path: Path) -> dict[str, Commission]:
    """Return what was seen working with each terminal. Raise StoreError where a row cannot be read."""
    try:
        return await store.read(commissions.read)
    except (StorageUnavailable, ValueError, TypeError, KeyError) as error:
        raise unusable(path, error) from error


async def _close(listeners: list[Listener]) -> None:
    await asyncio.gather(*(listener.close(REQUEST_GRACE_SECONDS) for listener in listeners))


def _told_to_reload(reload: asyncio.Event, on_terminal: bool) -> None:
    """Reload (SIGHUP); stop where it means that the terminal posd was started on was closed."""
    if on_terminal and not os.isatty(0):
        signal.raise_signal(signal.SIGTERM)
    else:
        reload.set()


def _told_to_stop(stop: asyncio.Event, number: signal.Signals) -> None:
    log.info("posd.stopping", signal=number.name)
    stop.set()


def _exception_handler(noise: RejectedTraffic) -> Any:
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
