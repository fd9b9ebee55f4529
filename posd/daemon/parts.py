"""Construction and connection of the daemon's parts. `daemon.main` starts and stops them."""

import asyncio
from datetime import timedelta
from functools import partial
from socket import socket
from typing import Final
from zoneinfo import ZoneInfo

from posd.api import webhooks
from posd.api.certificate import CertificatePair, CertificateRefusals, ServedCertificate
from posd.api.metrics import EventCounters
from posd.api.webhooks import WebhookApp
from posd.base import limits
from posd.base.clocks import ProcessMoment
from posd.base.times import iso
from posd.calls.streams import CallContext
from posd.clock.clock import WallClock
from posd.config import Config
from posd.daemon.presence import Presence
from posd.daemon.reload import InForce
from posd.daemon.surroundings import Surroundings
from posd.httpd.admission import AdmissionGate, ListenerPolicy, RejectedTraffic
from posd.httpd.server import HttpListener, give_memory_back
from posd.payments import record as payment_record
from posd.payments.abort import Aborts
from posd.payments.attentions import AddressChanges, ApprovalChecks, IdentityConflicts, UnreadApprovals
from posd.payments.inbox import Inbox
from posd.payments.reconcile import Reconciler
from posd.payments.record import TransactionChanged
from posd.payments.search import Searching
from posd.payments.start import Payments
from posd.printing import rows as print_rows
from posd.printing.inbox import PrintInbox
from posd.printing.poll import PrintPoller
from posd.printing.rows import PrintJobChanged
from posd.printing.start import Printing, PrintTurns
from posd.records.callback_urls import CallbackUrls
from posd.records.quotas import Quotas
from posd.records.service import ServiceParts
from posd.records.witness_file import WitnessFile
from posd.storage.backup import BackupFolder
from posd.storage.batch import RecordedChange
from posd.storage.database_files import disk_space
from posd.storage.store import MemoryTrimmer, Store
from posd.terminals.discovery import Discovery
from posd.terminals.fleet import Fleet, Liveness
from posd.terminals.interfaces import Interfaces
from posd.terminals.terminal import AddressChange
from posd.tls.certificate import called_as
from posd.tls.files import files_in
from posd.upkeep.restore_guard import RestoreGuard

#: Maximum number of connections on the LAN: many terminals, each with one or two.
MAX_LAN_CONNECTIONS: Final = limits.LAN_DESCRIPTORS
#: Seconds after which an idle connection is closed. During a payment a terminal sends an event every few seconds.
LAN_KEEP_ALIVE_SECONDS: Final = 15.0


class Daemon:
    """The parts of the daemon."""

    def __init__(
        self,
        surroundings: Surroundings,
        store: Store,
        clock: WallClock,
        certificate: ServedCertificate,
        in_force: InForce,
        noise: RejectedTraffic,
    ) -> None:
        """Build the terminals. Raise ConfigError, or OSError for a file that a terminal needs."""
        self.surroundings, self.store, self.clock = surroundings, store, clock
        self.certificate, self.in_force, self.noise = certificate, in_force, noise
        self.now = surroundings.now
        #: Configuration at the start; `in_force` has the newest.
        self.config = config = in_force.config
        self.fleet = Fleet(config.terminals, config.profiles, self.now, clock.is_sure)
        self.interfaces = Interfaces(surroundings.snapshot, surroundings.reports)
        self.discovery: Discovery | None = None
        if config.discovery.enabled:
            self.discovery = surroundings.discovery(config.discovery, self.fleet, self.interfaces, self.now)
        else:
            self.fleet.state.no_address = "discovery is switched off, and the configuration gives it no base_url"
        #: Monotonic seconds, from the event loop's clock.
        self.seconds = seconds = asyncio.get_running_loop().time
        self.quotas = Quotas(partial(disk_space, config.database.path.parent), seconds)

    def build(self, listening: socket, callback_urls: CallbackUrls) -> None:
        """Build the parts that need the address of the webhook listener, and connect all parts."""
        self.callback_urls = callback_urls
        self._build_payments()
        self._build_listener(listening)
        alive, elapsed = self.config.database.alive, self.surroundings.elapsed
        self.presence = Presence(self.store, alive, lambda: self.listener.accepting, self.now, elapsed)
        self.counters = EventCounters(self.fleet)
        every, chance = self.config.discovery.check_seconds, self.surroundings.chance
        self.liveness = Liveness(self.fleet, every, self.reconciler.is_open, chance)
        self.memory = MemoryTrimmer(self.store, give_memory_back)
        self.started = ProcessMoment(self.surroundings.elapsed, self.surroundings.started())
        self.backups = BackupFolder(self.config.database.backups)
        self.context = CallContext(
            self.store, self.now, self.quotas, self.restore_guard.missing_records, self.unread.read
        )
        self._connect()

    def _build_payments(self) -> None:
        config, clock = self.config, self.clock
        witness = WitnessFile(config.database.witness)
        self.restore_guard = RestoreGuard(self.store, witness, self.now, clock.limit, self._forgets_before)
        self.parts = ServiceParts(
            self.store,
            self.fleet,
            self.now,
            quotas=self.quotas,
            chance=self.surroundings.chance,
            elapsed=self.surroundings.elapsed,
            seconds=self.seconds,
            clock_doubt=lambda: clock.doubt,
            refuse_unseen=self.restore_guard.refuse,
            missing=self.restore_guard.missing_records,
        )
        parts, checks = self.parts, ApprovalChecks(config.merchant.currency, clock.is_sure)
        self.address_changes = AddressChanges(parts, self.interfaces)
        self.aborts = Aborts(parts)
        self.searching = Searching(parts, config.merchant.id, checks)
        self.reconciler = Reconciler(parts, self.searching, self.aborts, config.reconcile)
        self.inbox = Inbox(parts, config.merchant.id, checks, self.reconciler.unusable, clock.heard)
        zone, called_back_at = ZoneInfo(config.merchant.timezone), self.address_changes.called_back_at
        self.payments = Payments(parts, self.callback_urls, zone, checks, config.amounts, called_back_at)
        self.identity_conflicts = IdentityConflicts(parts)
        self.unread = UnreadApprovals(parts)
        turns = PrintTurns()
        self.printing = Printing(parts, self.callback_urls, turns)
        self.spooler = PrintPoller(parts, turns, config.print_)
        self.print_inbox = PrintInbox(parts, self.spooler.unusable)

    def _build_listener(self, listening: socket) -> None:
        """Build the listener for terminals on a socket."""
        channels = (
            webhooks.transactions(self.inbox, self.config.webhooks.max_body_bytes),
            webhooks.print_jobs(self.print_inbox),
        )
        self.webhooks = WebhookApp(channels, self.callback_urls, self.noise)
        self.distrust = CertificateRefusals(self.now, self._is_own)
        self.listener = HttpListener(
            self.webhooks,
            listening,
            ListenerPolicy(
                name="webhooks",
                keep_alive_seconds=LAN_KEEP_ALIVE_SECONDS,
                max_connections=MAX_LAN_CONNECTIONS,
                in_turn=True,
            ),
            self.noise,
            self.now,
            AdmissionGate(self.fleet.hosts, clock=self.seconds),
        )
        shared = self.listener.context
        shared.refused, shared.unreadable = self.distrust.told, self.webhooks.answer_unreadable
        self.listener.use_tls(self.certificate.served.context)
        #: Address of the listener for terminals.
        self.listen = f"{self.config.webhooks.listen.host}:{self.listener.port}"
        #: All listeners. The listener of the LAN is the first.
        self.listeners = [self.listener]

    def _connect(self) -> None:
        """Register the listeners of changes, in the order in which they are called."""
        # Called after each commit, on the event loop. The restore guard registers itself after it has compared the
        # witness.
        hub = self.store.hub
        hub.listen(self.reconciler.changed, TransactionChanged)  # plans the next search
        hub.listen(self.identity_conflicts.changed, TransactionChanged)  # records which terminal a device claims to be
        hub.listen(self.unread.changed, TransactionChanged)  # starts the ten minutes of an unread approval
        hub.listen(self.spooler.changed, PrintJobChanged)  # plans the next poll
        hub.listen(self.presence.changed, TransactionChanged)  # records a sign of life while payments are open
        hub.listen(self.memory.changed, RecordedChange)  # releases memory after many changes
        # Called in the next step of the event loop.
        hub.listen_later(payment_record.tell, TransactionChanged)
        hub.listen_later(print_rows.tell, PrintJobChanged)
        hub.listen_later(self.counters.count_payment, TransactionChanged)
        hub.listen_later(self.counters.count_print, PrintJobChanged)
        # Listeners for events of terminals.
        self.fleet.state.is_open = self.reconciler.is_open  # a terminal keeps its address while a payment is open
        self.fleet.listen(self.reconciler.returned, AddressChange.RETURNED)  # searches for the terminal's open payments
        self.fleet.listen(self.spooler.returned, AddressChange.RETURNED)  # polls the terminal's print jobs
        self.fleet.listen(self.identity_conflicts.probed, AddressChange.PROBED)  # marks the terminal's open payments
        # Listeners for changes of this machine: clock, certificate, network.
        self.clock.listen(self.certificate.look)
        self.certificate.listen(lambda served: self.listener.use_tls(served.context))
        self.interfaces.listen(self.fleet.network_changed)
        self.interfaces.listen(self.address_changes.compare)
        self.interfaces.listen(self.certificate.look)

    def _is_own(self, address: str) -> bool:
        """Return whether an address belongs to this machine, and no simulated terminal runs there."""
        own = {item.partition("%")[0] for item in self.interfaces.addresses}
        return address in own and address not in self.fleet.hosts()

    def _forgets_before(self) -> str:
        """Return the moment before which retention removes records, or "" if they are kept without limit."""
        days = self.config.database.retention_days
        return iso(self.clock.confirmed - timedelta(days=days)) if days else ""

    def status_line(self) -> str:
        """Return the state of posd as one line, for the service manager."""
        reachable = sum(terminal.addresses.reachable is True for terminal in self.fleet)
        words = f"listening on {self.listen}; {reachable} of {len(self.fleet.serials)} terminals reachable"
        if busy := self.reconciler.open_terminals():
            words += f"; payments open on {', '.join(sorted(busy))}"
        refused = self.in_force.refused
        return f"{words}; a changed configuration was refused: {refused[0]}" if refused else words

    def is_calling(self, identity: str) -> bool:
        """Return whether a call about an id is open. Retention skips such an id."""
        return bool(self.parts.outstanding.of(identity)) or self.printing.under_way(identity)


def certificate_pair(config: Config, surroundings: Surroundings) -> CertificatePair:
    """Return the files of the webhook listener's certificate. posd renews a certificate that it created."""
    made, given = files_in(config.database.tls_directory), config.webhooks
    wanted = partial(called_as, given.listen.host, given.advertise_host, surroundings.local_addresses)
    if given.certificate and given.private_key:
        return CertificatePair(given.certificate, given.private_key, None, wanted)
    own = (made, config.local_api.directory)
    return CertificatePair(made.certificate, made.private_key, config.file, wanted, own)
