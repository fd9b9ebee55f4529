"""Construction and wiring of the daemon's parts. `daemon.main` starts and stops them."""

import socket
from collections.abc import Callable
from datetime import timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
import structlog

from posd import __version__, tls
from posd.api import routes, webhooks
from posd.api.certificate import CertificatePair, ServedCertificate
from posd.api.clock import ClockCalls
from posd.api.commission import CommissionCalls
from posd.api.documents import Version
from posd.api.identity import IdentityCalls
from posd.api.maintenance import BackupCalls, QuarantineCalls, RetentionCalls
from posd.api.metrics import EventCounters
from posd.api.report_calls import ReportCalls
from posd.api.service import ServiceCalls
from posd.api.webhooks import WebhookApp
from posd.base import limits
from posd.base.clocks import monotonic
from posd.base.ids import Channel
from posd.base.limits import Limit
from posd.base.negotiation import Language
from posd.base.times import iso, released
from posd.calls.app import LocalApp, connection_refused
from posd.calls.context import CallContext
from posd.calls.route import BoundRoute, served
from posd.clock.clock import WallClock
from posd.clock.kernel import ProcessMoment
from posd.config import Config, HeaderError
from posd.daemon import sockets
from posd.daemon.health import HealthChecks
from posd.daemon.in_force import InForce
from posd.daemon.metrics import Metrics, metrics_listeners
from posd.daemon.presence import Presence, PresenceClock
from posd.daemon.status import StatusCalls
from posd.daemon.surroundings import Surroundings
from posd.httpd.admission import AdmissionGate, RejectedTraffic
from posd.httpd.peers import PeerQuotas, SocketPeer
from posd.httpd.server import HttpListener
from posd.payments import record as payment_record
from posd.payments.abort import Aborts
from posd.payments.address_changes import AddressChanges
from posd.payments.amounts import AmountRules
from posd.payments.approval_checks import ApprovalChecks
from posd.payments.decide import Operators
from posd.payments.handlers import TransactionCalls
from posd.payments.identity_conflicts import IdentityConflicts
from posd.payments.inbox import Inbox
from posd.payments.reconcile import Reconciler, ReconcileSettings
from posd.payments.record import CallsInFlight
from posd.payments.reprocess import payment_records
from posd.payments.schedule import ReconcileLimits
from posd.payments.search import Searching
from posd.payments.start import Payments
from posd.payments.unread import UnreadApprovals
from posd.printing import record as print_record
from posd.printing import schedule
from posd.printing.decide import PrintOperators
from posd.printing.handlers import PrintJobCalls
from posd.printing.inbox import PrintInbox
from posd.printing.poll import PrintPoller
from posd.printing.reprocess import print_records
from posd.printing.start import Printing
from posd.printing.turns import PrintTurns
from posd.records.callback_urls import CallbackUrls
from posd.records.commissions import Commissions
from posd.records.quarantine import Derivable, Reprocessing
from posd.records.quotas import LimitCounters, Quotas, limit_reached, tell
from posd.records.start import Missing
from posd.records.terminal_addresses import IdentityDecisions
from posd.records.witness_file import WitnessFile
from posd.storage.backup import BackupFolder
from posd.storage.connection import schema_version, unusable
from posd.storage.database_files import FreeSpace
from posd.storage.errors import StorageUnavailable
from posd.storage.store import Store
from posd.terminals.certificate_refusals import CertificateRefusals
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet
from posd.terminals.interfaces import Interfaces
from posd.terminals.liveness import Liveness
from posd.upkeep.restore_guard import RestoreGuard
from posd.upkeep.retention import Retention

#: Most connections of the LAN: many terminals, each with one or two.
MAX_LAN_CONNECTIONS: Final = limits.LAN_DESCRIPTORS
#: Seconds after which an idle connection is closed. A terminal sends an event every few seconds of a payment.
LAN_KEEP_ALIVE_SECONDS: Final = 15.0
#: Seconds after which a program with too many connections may retry.
TOO_MANY_SECONDS: Final = 1
LOCAL_KEEP_ALIVE_SECONDS: Final = 75.0
NOT_ON_THE_FEED_SOCKET: Final = (
    "this socket serves GET /v1/feed, /v1/health and /v1/version alone, the till socket the rest"
)

log = structlog.get_logger("posd.local")


class CannotStart(Exception):
    """Failure of the start; the message has the reason and the cure."""


async def wall_clock(config: Config, surroundings: Surroundings, store: Store) -> WallClock:
    """Build the clock guard, and make its first check. Raise StoreError."""
    limit = timedelta(seconds=config.clock.max_step_seconds)
    now, elapsed = surroundings.now, surroundings.elapsed
    clock = WallClock(store, limit, released(), now, elapsed, surroundings.kernel_state)
    try:
        await clock.begin()
    # ValueError and TypeError: a row that was damaged on the disk
    except (StorageUnavailable, ValueError, TypeError) as error:
        raise unusable(config.database.path, error) from error
    return clock


class TerminalParts(msgspec.Struct, frozen=True):
    """The fleet, and the sources of its addresses; `discovery` is None if it is switched off."""

    fleet: Fleet
    interfaces: Interfaces
    discovery: Discovery | None

    def is_own(self, address: str) -> bool:
        """Return whether an address is this machine's own, and no terminal runs there."""
        own = {item.partition("%")[0] for item in self.interfaces.addresses}
        return address in own and address not in self.fleet.addresses.hosts()


def terminals(config: Config, surroundings: Surroundings, clock: WallClock) -> TerminalParts:
    """Build the fleet, the interfaces and the discovery. Raise CannotStart."""
    now = surroundings.now
    try:
        fleet = Fleet(config.terminals, config.profiles, now, lambda: clock.sure)
    except (OSError, HeaderError) as error:
        raise CannotStart(f"cannot use what the configuration says of a terminal: {error}") from error
    if not config.discovery.enabled:
        fleet.addresses.no_address = "discovery is switched off, and the configuration gives it no base_url"
    interfaces = Interfaces(surroundings.snapshot, surroundings.reports)
    interfaces.listen(fleet.addresses.network_changed)
    given, make = config.discovery, surroundings.discovery
    discovery = make(given, fleet, interfaces, now) if given.enabled else None
    return TerminalParts(fleet, interfaces, discovery)


class CoreParts(msgspec.Struct, frozen=True):
    """Parts that all others need; `keys` are those of the callback URLs."""

    config: Config
    surroundings: Surroundings
    store: Store
    clock: WallClock
    terminals: TerminalParts
    callback_urls: CallbackUrls
    keys: tuple[bytes, ...]
    noise: RejectedTraffic
    quotas: Quotas
    in_force: InForce


def quotas(config: Config) -> Quotas:
    """Build the limits on what each sender may have stored."""
    return Quotas(LimitCounters(tell, monotonic), FreeSpace(config.database.path.parent, monotonic))


class PaymentParts(msgspec.Struct, frozen=True):
    """Use cases of payments."""

    outstanding: CallsInFlight
    restore_guard: RestoreGuard
    payments: Payments
    aborts: Aborts
    searching: Searching
    reconciler: Reconciler
    inbox: Inbox
    operators: Operators
    address_changes: AddressChanges
    identity_conflicts: IdentityConflicts
    records: Derivable[Any]
    unread: UnreadApprovals


def payments(base: CoreParts) -> PaymentParts:
    """Build the use cases of payments."""
    config, store, fleet, now = base.config, base.store, base.terminals.fleet, base.surroundings.now
    outstanding = CallsInFlight()
    witness = WitnessFile(config.database.witness)
    restore_guard = RestoreGuard(store, witness, now, base.clock.limit, partial(_forgets_before, base))
    address_changes = AddressChanges(store, base.terminals.interfaces, outstanding, now)
    zone = ZoneInfo(config.merchant.timezone)
    aborts = Aborts(store, fleet, outstanding, now, base.quotas)
    approval_checks = ApprovalChecks(config.merchant.currency, lambda: base.clock.sure)
    searching = Searching(store, fleet, config.merchant.id, outstanding, now, approval_checks, base.quotas)
    conflict = fleet.addresses.conflict
    reconciler = Reconciler(
        store,
        searching,
        aborts,
        outstanding,
        _reconciling(config),
        now,
        base.surroundings.chance,
        conflict=lambda serial: conflict(serial) is not None,
    )
    inbox = Inbox(
        store,
        fleet,
        config.merchant.id,
        outstanding,
        now,
        on_unusable=reconciler.unusable,
        quotas=base.quotas,
        approval_checks=approval_checks,
    )
    fleet.addresses.is_open(reconciler.is_open)
    fleet.addresses.listen(reconciler.returned)  # queries open payments on a terminal that is reachable again
    store.hub.listen_later(partial(_tell, base.clock), payment_record.TransactionChanged)
    return PaymentParts(
        outstanding,
        restore_guard,
        Payments(
            store,
            fleet,
            base.callback_urls,
            outstanding,
            zone,
            now,
            address_changes.called_back_at,
            restore_guard.refuse,
            base.quotas,
            AmountRules(**msgspec.structs.asdict(config.amounts)),
            lambda: base.clock.doubt,
            base.surroundings.elapsed,
            restore_guard.missing_records,
            approval_checks.currencies,
        ),
        aborts,
        searching,
        reconciler,
        inbox,
        Operators(store, fleet, outstanding, now, restore_guard.missing_records),
        address_changes,
        IdentityConflicts(store, fleet, outstanding, now),
        payment_records(inbox, outstanding),
        UnreadApprovals(store, outstanding, now),
    )


def _forgets_before(base: CoreParts) -> str:
    """Return the moment before which records are removed by age, "" if they are kept for ever."""
    days = base.config.database.retention_days
    return iso(base.clock.confirmed - timedelta(days=days)) if days else ""


def _tell(clock: WallClock, moved: payment_record.TransactionChanged) -> None:
    """Log a change, and pass the time of a terminal's event to the clock guard."""
    payment_record.tell(moved)
    if isinstance(moved.cause, payment_record.Received) and payment_record.updates_terminal(moved):
        event = moved.cause.event
        clock.heard(event.terminal.serial_number, moved.id, event.occurred_at)


def _reconciling(config: Config) -> ReconcileSettings:
    given = config.reconcile
    return ReconcileSettings(
        ReconcileLimits(given.first_event_grace_seconds, given.stall_seconds, given.stall_after_request_seconds),
        settle=given.settle_seconds,
        probe_with_abort=given.probe_with_abort,
    )


class PrintParts(msgspec.Struct, frozen=True):
    """Use cases of print jobs."""

    printing: Printing
    spooler: PrintPoller
    inbox: PrintInbox
    operators: PrintOperators
    records: Derivable[Any]


def printing(base: CoreParts, missing: Missing) -> PrintParts:
    """Build the use cases of print jobs."""
    store, fleet, given, turns = base.store, base.terminals.fleet, base.config.print_, PrintTurns()
    now = base.surroundings.now
    jobs = Printing(store, fleet, base.callback_urls, turns, now, base.quotas, missing)
    limits = schedule.PollLimits(given.poll_first_seconds, given.poll_max_seconds, given.stuck_seconds)
    spooler = PrintPoller(store, fleet, turns, limits, now, base.surroundings.chance)
    inbox = PrintInbox(store, fleet, now, on_unusable=spooler.unusable, quotas=base.quotas)
    fleet.addresses.listen(spooler.returned)
    store.hub.listen_later(print_record.tell, print_record.PrintJobChanged)
    return PrintParts(jobs, spooler, inbox, PrintOperators(store, jobs, now), print_records(inbox))


class WebhookParts(msgspec.Struct, frozen=True):
    """The listener of the terminals, and its guards."""

    listener: HttpListener
    app: WebhookApp
    certificate: ServedCertificate
    distrust: CertificateRefusals


def webhook_door(
    base: CoreParts, certificate: ServedCertificate, paying: PaymentParts, prints: PrintParts, listening: socket.socket
) -> WebhookParts:
    """Build the listener that terminals call, on that socket."""
    channels = (
        webhooks.transactions(paying.inbox, base.config.webhooks.max_body_bytes),
        webhooks.print_jobs(prints.inbox),
    )
    app = WebhookApp(channels, base.callback_urls, base.noise)
    distrust = CertificateRefusals(base.surroundings.now, base.terminals.is_own)
    listener = HttpListener(
        app,
        listening,
        name="webhooks",
        noise=base.noise,
        now=base.surroundings.now,
        keep_alive_seconds=LAN_KEEP_ALIVE_SECONDS,
        max_connections=MAX_LAN_CONNECTIONS,
        in_turn=True,
        gate=AdmissionGate(base.terminals.fleet.addresses.hosts, clock=monotonic),
        tls=certificate.served.context,
        refused=distrust.told,
        unreadable=app.answer_unreadable,
    )
    certificate.listen(lambda served: listener.use_tls(served.context))
    base.terminals.interfaces.listen(certificate.look)
    return WebhookParts(listener, app, certificate, distrust)


def pair(config: Config, surroundings: Surroundings) -> CertificatePair:
    """Return the files of the webhook listener's certificate; posd renews a certificate that it made."""
    made = tls.files(config.database.tls_directory)
    given = config.webhooks
    return CertificatePair(
        given.certificate or made.certificate,
        given.private_key or made.private_key,
        None if given.certificate else config.file,
        partial(tls.called_as, given.host, given.advertise_host, surroundings.local_addresses),
        partial(tls.new_ca_signs_from, made),
        lambda: None if given.certificate else tls.publish_ca(made, config.local_api.directory),
    )


def presence(base: CoreParts, door: WebhookParts) -> Presence:
    """Build the watch on whether terminals can call."""
    clock = PresenceClock(base.surroundings.now, elapsed=base.surroundings.elapsed)
    return Presence(base.store, base.config.database.alive, lambda: door.listener.accepting, clock)


def liveness(base: CoreParts, paying: PaymentParts) -> Liveness:
    """Build the prober of the terminals."""
    every, chance, reconciler = base.config.discovery.check_seconds, base.surroundings.chance, paying.reconciler
    made = Liveness(base.terminals.fleet, every, reconciler.is_open, chance)
    reconciler.on_open = made.changed
    return made


class LocalParts(msgspec.Struct, frozen=True):
    """Listeners of tills and operators, all listeners, and the parts that only they use."""

    listeners: list[HttpListener]
    health: HealthChecks
    metrics: Metrics
    backups: BackupCalls
    retention: Retention


def local_doors(
    base: CoreParts,
    paying: PaymentParts,
    prints: PrintParts,
    door: WebhookParts,
    there: Presence,
    tally: EventCounters,
    inherited: sockets.InheritedSockets,
) -> LocalParts:
    """Build the local API on its sockets, and the listener of the metrics if configured. Raise SocketError."""
    config, store, around, noise = base.config, base.store, base.terminals, base.noise
    now, clock, database = base.surroundings.now, base.clock, config.database
    context = CallContext(store, now, base.quotas, paying.restore_guard.missing_records, paying.unread.read)
    retention = Retention(
        store,
        database.retention_days,
        _busy(paying, prints),
        now,
        lambda: clock.confirmed,
        lambda: clock.doubt,
    )
    backups = BackupCalls(context, store, database.path, base.keys, paying.restore_guard)
    listeners = [door.listener]
    health = HealthChecks(
        context,
        listeners,
        around.discovery,
        door.certificate,
        door.distrust,
        there,
        paying.restore_guard,
        clock,
        around.fleet,
        base.in_force,
        database.path,
    )
    calls = TransactionCalls(
        context,
        paying.payments,
        paying.aborts,
        paying.reconciler,
        paying.operators,
        config.reconcile.first_event_grace_seconds,
        Language(config.local_api.language),
    )
    version = Version(
        version=__version__,
        api="v1",
        schema=schema_version(),
        timezone=config.merchant.timezone,
        currency=config.merchant.currency,
        language=config.local_api.language,
    )
    metrics = Metrics(
        context=context,
        store=store,
        database=database.path,
        backups=BackupFolder(database.backups),
        fleet=around.fleet,
        health=health,
        presence=there,
        restore_guard=paying.restore_guard,
        clock=clock,
        in_force=base.in_force,
        tally=tally,
        calls=calls,
        webhooks=door.app,
        inboxes={Channel.TRANSACTION: paying.inbox, Channel.PRINT: prints.inbox},
        searching=paying.searching,
        spooler=prints.spooler,
        noise=noise,
        reached=base.quotas.reached,
        certificate=door.certificate,
        distrust=door.distrust,
        listeners=listeners,
        now=now,
        started=ProcessMoment(base.surroundings.elapsed, base.surroundings.started()),
    )
    all_calls = served(
        routes.ALL,
        calls,
        PrintJobCalls(context, prints.printing, prints.operators, prints.spooler),
        QuarantineCalls(context, Reprocessing(store, (prints.records, paying.records))),
        backups,
        RetentionCalls(retention),
        ClockCalls(context, clock),
        ServiceCalls(context, around.fleet, health.checks, version, lambda: base.in_force.config.relay.metadata),
        ReportCalls(context, store, clock, config.merchant.timezone, config.reconcile.first_event_grace_seconds),
        IdentityCalls(context, around.fleet, IdentityDecisions(store, around.fleet, now)),
        CommissionCalls(context, around.fleet, Commissions(store, around.fleet, now), paying.reconciler),
        metrics,
        StatusCalls(metrics, version),
    )
    listeners += _local_listeners(base, all_calls, inherited)
    listeners += metrics_listeners(config.metrics, metrics, noise, base.surroundings.tcp_socket)
    return LocalParts(listeners, health, metrics, backups, retention)


def _busy(paying: PaymentParts, prints: PrintParts) -> Callable[[str], bool]:
    """Return the check that a call about an id is open, so that retention skips it."""
    return lambda identity: bool(paying.outstanding.of(identity)) or prints.printing.under_way(identity)


def _local_listeners(
    base: CoreParts, calls: tuple[BoundRoute, ...], inherited: sockets.InheritedSockets
) -> list[HttpListener]:
    api, noise = base.config.local_api, base.noise
    places = limits.places(base.surroundings.descriptors(limits.DESCRIPTORS))
    in_flight = base.quotas.in_flight
    app = LocalApp(calls, in_flight)
    feed = LocalApp(tuple(call for call in calls if call.route.feed), in_flight, NOT_ON_THE_FEED_SOCKET)
    doors = [
        (app, api.till_socket, api.till_group, False, places.tills, limits.CONNECTIONS_OF_TILLS),
        (app, api.admin_socket, api.admin_group, True, places.operators, limits.CONNECTIONS_OF_OPERATORS),
        (feed, api.feed_socket, api.feed_group, False, places.feed, limits.CONNECTIONS_OF_FEED),
    ]
    return [
        HttpListener(
            served_app,
            sock,
            name=path.name,
            noise=noise,
            now=base.surroundings.now,
            keep_alive_seconds=LOCAL_KEEP_ALIVE_SECONDS,
            max_connections=most,
            senders=PeerQuotas(
                min(places.process, most // 2), places.user, partial(_too_many, base.quotas.reached, limit)
            ),
            state={"admin": admin, "feed": served_app is feed},
        )
        for served_app, path, group, admin, most, limit in doors
        if (sock := _socket(base, path, group, inherited, may_miss=served_app is feed)) is not None
    ]


def _socket(
    base: CoreParts, path: Path, group: str, inherited: sockets.InheritedSockets, *, may_miss: bool
) -> socket.socket | None:
    """Return the socket of that path. With `may_miss`, log a failure and return None. Raise SocketError."""
    try:
        return inherited.take(path, group) or base.surroundings.unix_socket(path, group)
    except sockets.SocketError as error:
        if not may_miss:
            raise
        (log.info if isinstance(error, sockets.NoGroup) else log.warning)("feed.no_socket", error=str(error))
        return None


def _too_many(reached: LimitCounters, of_socket: Limit, which: str, sender: SocketPeer) -> bytes:
    """Count and log a sender with too many connections; return the response to a further one."""
    limit = {"process": limits.CONNECTIONS_OF_PROCESS, "user": limits.CONNECTIONS_OF_USER}.get(which, of_socket)
    reached.note(limit, pid=sender.pid, uid=sender.uid)
    return _refusal_of(limit)


@cache
def _refusal_of(limit: Limit) -> bytes:
    return connection_refused(limit_reached(limit, "cannot take this connection", TOO_MANY_SECONDS))
