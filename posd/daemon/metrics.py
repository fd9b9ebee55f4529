"""Where the values of the metrics come from; read when somebody asks, from the parts that know them."""

import os
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec

from posd import __version__
from posd.api.certificate import ServedCertificate
from posd.api.metrics.tally import OTHER, Tally
from posd.api.metrics.text import Sample, Samples, render
from posd.api.service import STATES, each
from posd.api.webhooks import WebhookApp
from posd.base.problems import Problem
from posd.base.times import parse_iso
from posd.calls.context import Context
from posd.daemon.health import Health
from posd.daemon.presence import Presence
from posd.httpd.alerts import CertificateRefusals
from posd.httpd.rejected_traffic import RejectedTraffic
from posd.httpd.server import Listener
from posd.payments.handlers import TransactionCalls
from posd.payments.inbox import Inbox
from posd.payments.model import AttentionCode
from posd.payments.search import Searching
from posd.printing.inbox import PrintInbox
from posd.printing.model import PrintAttentionCode
from posd.printing.poll import Spooler
from posd.records import figures
from posd.records.figures import Figures
from posd.records.model import Phase
from posd.storage.opening import schema_version
from posd.storage.store import Store
from posd.terminals.fleet import Fleet

OPEN_PHASES = tuple(str(phase) for phase in Phase if phase is not Phase.FINAL)


class Parts(msgspec.Struct, frozen=True):
    """The parts of the daemon that know something; `inboxes` by channel."""

    context: Context
    store: Store
    database: Path
    backups: Path
    fleet: Fleet
    health: Health
    presence: Presence
    tally: Tally
    calls: TransactionCalls
    webhooks: WebhookApp
    inboxes: Mapping[str, Inbox | PrintInbox]
    searching: Searching
    spooler: Spooler
    noise: RejectedTraffic
    certificate: ServedCertificate
    distrust: CertificateRefusals
    listeners: list[Listener]
    now: Callable[[], datetime]


class Metrics:
    """Makes the text of all metrics."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._figures: Figures | None = None
        self._started = time.time() - _age_seconds()

    async def text(self) -> str:
        """Return all metrics as text."""
        parts = self._parts
        health = await parts.health.checks()
        try:
            self._figures = await parts.context.read(partial(figures.read, known=self._figures))
        except Problem:
            self._figures = None
        absence = await parts.presence.look()
        away = absence[1] if absence is not None else 0
        return render(self._all({name: check.status for name, check in each(health).items()}, away))

    def _all(self, health: Mapping[str, str], away: int) -> Iterator[Samples]:
        yield "posd_build_info", [((__version__, str(schema_version())), 1)]
        yield "posd_health", [((name,), STATES.index(state)) for name, state in health.items()]
        yield from self._payments()
        yield from self._webhooks(away)
        yield from self._certificate()
        yield from self._terminals()
        yield from self._storage()
        if self._figures is not None:
            yield from self._stored(self._figures)
        yield from _files(self._parts.database, self._parts.backups)
        yield from _process(self._started)

    def _payments(self) -> Iterator[Samples]:
        tally, calls = self._parts.tally, self._parts.calls
        yield "posd_payments_started_total", list(tally.started.items())
        yield "posd_payments_ended_total", list(tally.ended.items())
        yield "posd_start_refusals_total", _by_word(calls.refused)
        yield "posd_payment_acknowledgement_seconds", [((), calls.acknowledged)]
        yield "posd_payment_outcome_seconds", [((result,), item) for result, item in tally.outcome_seconds.items()]
        yield "posd_searches_total", _by_word(self._parts.searching.results)
        yield "posd_aborts_total", _by_word(tally.aborts)
        yield "posd_print_jobs_ended_total", list(tally.prints_ended.items())
        yield "posd_print_polls_total", _by_word(self._parts.spooler.polls)

    def _webhooks(self, away: int) -> Iterator[Samples]:
        parts = self._parts
        replies = parts.webhooks.replies.items()
        yield "posd_webhook_replies_total", [((channel, str(code)), count) for (channel, code), count in replies]
        yield "posd_webhook_seconds", [((channel,), item) for channel, item in parts.webhooks.seconds.items()]
        repeated = [((channel,), inbox.repeated) for channel, inbox in parts.inboxes.items()]
        yield "posd_webhooks_repeated_total", repeated
        yield "posd_listener_noise_total", _by_word(parts.noise.counts)
        yield "posd_listener_absences_total", [((), parts.presence.absences)]
        yield "posd_listener_away_payments", [((), away)]
        yield "posd_connections", [((item.name,), item.connections) for item in parts.listeners]
        yield "posd_streams_open", _by_word(parts.context.streams.open)
        yield "posd_streams_ended_total", list(parts.context.streams.ended.items())

    def _certificate(self) -> Iterator[Samples]:
        certificate = self._parts.certificate
        end = certificate.served.info.not_after.timestamp()
        yield "posd_certificate_expiry_timestamp_seconds", [((), end)]
        yield "posd_certificate_trouble", [((), certificate.trouble is not None)]
        ours, refusals = self._parts.fleet.hosts(), Counter[str]()
        for address, item in self._parts.distrust.recent().items():
            refusals[address if address in ours else OTHER] += item.count
        yield "posd_certificate_refusals", _by_word(refusals)

    def _terminals(self) -> Iterator[Samples]:
        documents = list(self._parts.fleet.documents({}, everything=False))
        known = [(item.serial, item.reachable) for item in documents if item.reachable is not None]
        yield "posd_terminal_reachable", [((serial,), reachable) for serial, reachable in known]
        yield (
            "posd_terminal_last_seen_timestamp_seconds",
            [((item.serial,), parse_iso(item.last_seen).timestamp()) for item in documents if item.last_seen],
        )

    def _storage(self) -> Iterator[Samples]:
        writer = self._parts.store.writer
        yield "posd_storage_commit_seconds", [((), writer.commit_seconds)]
        yield "posd_storage_commit_functions", [((), writer.commit_functions)]
        yield "posd_storage_waiting_writes", [((), writer.waiting)]
        yield "posd_storage_write_failed", [((), self._parts.store.write_error is not None)]
        yield "posd_storage_read_failed", [((), self._figures is None)]

    def _stored(self, found: Figures) -> Iterator[Samples]:
        yield "posd_payments_open", _each(OPEN_PHASES, found.open)
        oldest = min(found.oldest.values(), default=None)
        now = self._parts.now()
        yield "posd_payments_open_oldest_seconds", [((), _age(oldest, now))]
        yield "posd_payments_in_doubt_oldest_seconds", [((), _age(found.oldest.get(Phase.IN_DOUBT), now))]
        yield "posd_attention", _each(AttentionCode, found.attention)
        yield "posd_print_jobs_open", _each(OPEN_PHASES, found.open_prints)
        yield "posd_print_attention", _each(PrintAttentionCode, found.print_attention)
        yield "posd_quarantine_bodies", [((), found.quarantined)]
        yield "posd_feed_newest_seq", [((), found.seq)]


def _age(at: str | None, now: datetime) -> float:
    """Return how old it is, in seconds; 0 for nothing, and where the clock was set back."""
    return 0.0 if at is None else max(0.0, round((now - parse_iso(at)).total_seconds(), 3))


def _by_word(counts: Mapping[str, float]) -> list[Sample]:
    return [((word,), count) for word, count in counts.items()]


def _each(words: Iterable[str], counts: Mapping[str, int]) -> list[Sample]:
    """Return a value for each word, 0 where nothing was counted, and for what only the database knows."""
    return _by_word({**dict.fromkeys(map(str, words), 0), **counts})


def _files(database: Path, backups: Path) -> Iterator[Samples]:
    with suppress(OSError):
        yield "posd_database_bytes", [((), database.stat().st_size)]
    with suppress(OSError):
        yield "posd_database_wal_bytes", [((), database.with_name(database.name + "-wal").stat().st_size)]
    with suppress(OSError):
        disk = os.statvfs(database.parent)
        yield "posd_disk_free_bytes", [((), disk.f_bavail * disk.f_frsize)]
        yield "posd_disk_size_bytes", [((), disk.f_blocks * disk.f_frsize)]
    with suppress(OSError), os.scandir(backups) as entries:
        newest = max((item.stat().st_mtime for item in entries if item.name.endswith(".db")), default=None)
        if newest is not None:
            yield "posd_backup_last_success_timestamp_seconds", [((), newest)]


def _process(started: float) -> Iterator[Samples]:
    with suppress(OSError, ValueError, IndexError):
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        yield "posd_process_resident_memory_bytes", [((), pages * resource.getpagesize())]
    yield "posd_process_cpu_seconds_total", [((), round(time.process_time(), 3))]
    yield "posd_process_start_time_seconds", [((), round(started, 2))]
    with suppress(OSError), os.scandir("/proc/self/fd") as entries:
        yield "posd_process_open_fds", [((), sum(1 for _ in entries))]
    yield "posd_process_max_fds", [((), resource.getrlimit(resource.RLIMIT_NOFILE)[0])]


def _age_seconds() -> float:
    """Return how long this process has run: field 22 of proc(5) stat, in ticks since the boot."""
    with suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()
        ticks = int(fields[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks)
    return 0.0
