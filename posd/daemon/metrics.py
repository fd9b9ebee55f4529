"""Values of the daemon's metrics, which are read from the parts on request. `metrics.txt` has the table of the metrics.

docs/reference/metrics.md shows the same table. A label has few values: serials of the fleet, and words of posd. No
value comes from an unknown peer. Counters start at 0 when the process starts.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

import msgspec
import structlog
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable, Scope
from starlette.requests import Request
from starlette.responses import Response

from posd import __version__
from posd.api.documents import STATES, Checks
from posd.api.metrics import OTHER, DatabaseGauges, read_gauges
from posd.base import files
from posd.base.clocks import tick
from posd.base.exposition import (
    CONTENT_TYPE,
    Samples,
    process_table,
    process_values,
    refusal,
    render,
    table,
)
from posd.base.ids import Channel
from posd.base.problems import Problem
from posd.base.times import parse_iso
from posd.daemon.parts import Daemon
from posd.daemon.status import HealthChecks, read_disk
from posd.httpd import bodies
from posd.httpd.admission import ListenerPolicy
from posd.httpd.server import HttpListener
from posd.logs import output
from posd.payments.handlers import TransactionCalls
from posd.payments.model import AttentionCode
from posd.payments.start import REFUSALS
from posd.printing.model import PrintAttentionCode
from posd.records.model import Phase
from posd.storage.connection import schema_version

_TEXT = (b"content-type", b"text/plain; charset=utf-8")
#: Kinds of misuse of the listener by a device. Their counters exist from the start. If a counter began at 1, an alert
#: would not detect the increase from 0 to 1.
MISUSE = ("wrong_token", "too_many_connections", "unproven_cut")
OPEN_PHASES = tuple(str(phase) for phase in Phase if phase is not Phase.FINAL)

log = structlog.get_logger("posd.metrics")

#: Metrics in the order of display. Each line of the file has kind, name, labels (- for none) and meaning.
FAMILIES = table(Path(__file__).with_name("metrics.txt").read_text("utf-8") + process_table("posd"))

#: Maximum number of connections of the loopback listener. Prometheus uses one.
MAX_CONNECTIONS = 8
#: Seconds after which a connection without a request is closed. After a response the connection is closed at once.
KEEP_ALIVE_SECONDS = 10.0


class Metrics(msgspec.Struct, eq=False):
    """Text of all metrics, from the parts of the daemon."""

    daemon: Daemon
    health: HealthChecks
    calls: TransactionCalls
    _figures: DatabaseGauges | None = None
    #: Start of the process by the wall clock at that time, in seconds since 1970. A correction of the clock does not
    #: change it, because for Prometheus another value means another process.
    _started_at: float = 0.0

    def __post_init__(self) -> None:
        self._started_at = self.daemon.started.at(self.daemon.now()).timestamp()

    async def get_metrics(self, _request: Request) -> Response:
        """Return the response to `GET /metrics`."""
        return Response(await self.text(), headers={"content-type": CONTENT_TYPE})

    async def serve(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        """Serve one request of the loopback listener (ASGI). Only GET /metrics is allowed."""
        if scope["type"] != "http":
            return
        host = dict(scope["headers"]).get(b"host")
        refused = refusal(scope["method"], scope["path"], host.decode("latin-1") if host is not None else None)
        if refused is not None:
            status, words, headers = refused
            await bodies.answer_early(receive, send, status, f"{words}\n".encode(), (_TEXT, *headers))
            return
        try:
            status, text, kind = 200, (await self.text()).encode(), CONTENT_TYPE.encode()
        except Exception:
            log.exception("metrics.failed")
            status, text, kind = 500, b"posd failed; its log says how\n", _TEXT[1]
        await bodies.answer_early(receive, send, status, text, ((b"content-type", kind),))

    async def text(self) -> str:
        """Return all metrics as text."""
        health = await self.health.checks()
        try:
            self._figures = await self.daemon.context.read(partial(read_gauges, known=self._figures))
        except Problem:
            self._figures = None
        absence = await self.daemon.presence.look()
        away = len(absence[1]) if absence is not None else 0
        newest = await self.daemon.backups.newest()
        return render(FAMILIES, self._all(health, away, newest[0] if newest is not None else None))

    def _all(self, health: Checks, away: int, backup_at: float | None) -> Iterator[Samples]:
        yield "posd_build_info", {(__version__, str(schema_version())): 1}
        yield (
            "posd_health",
            {name: STATES.index(check.status) for name, check in msgspec.structs.asdict(health).items()},
        )
        yield "posd_clock_unsure", not self.daemon.clock.is_sure()
        yield "posd_config_refused", bool(self.daemon.in_force.refused)
        yield from self._payments()
        yield from self._webhooks(away)
        yield from self._certificate()
        yield from self._terminals()
        yield from self._storage()
        if self._figures is not None:
            yield from self._stored(self._figures)
        yield from _files(self.daemon.config.database.path)
        yield "posd_backup_last_success_timestamp_seconds", backup_at
        yield from process_values("posd", self._started_at, output.writer.dropped)

    def _payments(self) -> Iterator[Samples]:
        counted, calls = self.daemon.counters, self.calls
        yield "posd_payments_started_total", counted.started
        yield "posd_payments_ended_total", counted.ended
        yield "posd_start_refusals_total", _each((*REFUSALS, "internal_error"), calls.refused)
        yield "posd_payment_acknowledgement_seconds", calls.acknowledged
        yield "posd_payment_outcome_seconds", counted.outcome_seconds
        yield "posd_searches_total", self.daemon.searching.results
        yield "posd_aborts_total", counted.aborts
        yield "posd_print_jobs_ended_total", counted.prints_ended
        yield "posd_print_polls_total", self.daemon.spooler.polls

    def _webhooks(self, away: int) -> Iterator[Samples]:
        replies = self.daemon.webhooks.replies.items()
        yield "posd_webhook_replies_total", {(channel, str(code)): count for (channel, code), count in replies}
        yield "posd_webhook_seconds", {str(channel): item for channel, item in self.daemon.webhooks.seconds.items()}
        inboxes = ((Channel.TRANSACTION, self.daemon.inbox), (Channel.PRINT, self.daemon.print_inbox))
        yield "posd_webhooks_repeated_total", {str(channel): inbox.callbacks.repeated for channel, inbox in inboxes}
        yield "posd_listener_noise_total", _each(MISUSE, self.daemon.noise.counts)
        yield "posd_limit_reached_total", self.daemon.quotas.reached.counts
        yield "posd_listener_absences_total", self.daemon.presence.absences
        yield "posd_listener_away_payments", away
        yield "posd_connections", {item.policy.name: item.connections for item in self.daemon.listeners}
        yield "posd_streams_open", self.daemon.context.streams.open
        yield "posd_streams_ended_total", self.daemon.context.streams.ended

    def _certificate(self) -> Iterator[Samples]:
        certificate = self.daemon.certificate
        yield "posd_certificate_expiry_timestamp_seconds", certificate.served.info.not_after.timestamp()
        yield "posd_certificate_trouble", certificate.trouble is not None
        ours, refusals = self.daemon.fleet.hosts(), Counter[str]()
        for address, item in self.daemon.distrust.recent().items():
            refusals[address if address in ours else OTHER] += item.count
        yield "posd_certificate_refusals", refusals

    def _terminals(self) -> Iterator[Samples]:
        documents = list(self.daemon.fleet.documents({}, everything=False))
        yield "posd_terminal_reachable", {item.serial: bool(item.reachable) for item in documents}
        seen = ((item.serial, item.last_seen) for item in documents)
        last_seen = {serial: parse_iso(at).timestamp() if at else 0 for serial, at in seen}
        yield "posd_terminal_last_seen_timestamp_seconds", last_seen
        yield "posd_terminal_identity_conflict", {item.serial: item.identity.conflict for item in documents}
        discovery = self.daemon.discovery
        yield "posd_discovery_ignored_total", None if discovery is None else discovery.ignored

    def _storage(self) -> Iterator[Samples]:
        writer = self.daemon.store.writer
        yield "posd_storage_commit_seconds", writer.commit_seconds
        yield "posd_storage_commit_functions", writer.commit_functions
        yield "posd_storage_checkpoint_seconds", writer.checkpoints.seconds
        yield "posd_storage_waiting_writes", writer.waiting
        yield "posd_restore_unseen", self.daemon.restore_guard.refuses
        yield "posd_witness_write_failed", self.daemon.restore_guard.witness_error is not None
        yield "posd_storage_write_failed", self.daemon.store.write_error is not None
        yield "posd_storage_read_failed", self._figures is None

    def _stored(self, found: DatabaseGauges) -> Iterator[Samples]:
        now = self.daemon.now()
        yield "posd_payments_open", _each(OPEN_PHASES, found.open)
        yield "posd_payments_open_oldest_seconds", _age(min(found.oldest.values(), default=None), now)
        yield "posd_payments_in_doubt_oldest_seconds", _age(found.oldest.get(Phase.IN_DOUBT), now)
        yield "posd_attention", _each(AttentionCode, found.attention)
        yield "posd_print_jobs_open", _each(OPEN_PHASES, found.open_prints)
        yield "posd_print_attention", _each(PrintAttentionCode, found.print_attention)
        yield "posd_quarantine_bodies", found.quarantined
        yield "posd_feed_newest_seq", found.seq

    # Further outputs of the metrics: a listener on this machine's loopback address, a text file.

    def listeners(self) -> list[HttpListener]:
        """Return the loopback listener, if it is configured. Raise SocketError."""
        listen = self.daemon.config.metrics.listen
        if listen is None:
            return []
        sock = self.daemon.surroundings.tcp_socket(listen.host, listen.port, "metrics.listen")
        policy = ListenerPolicy(name="metrics", keep_alive_seconds=KEEP_ALIVE_SECONDS, max_connections=MAX_CONNECTIONS)
        return [HttpListener(self.serve, sock, policy, self.daemon.noise, self.daemon.now)]

    async def write_textfile(self) -> None:
        """Write the configured file for node_exporter, until cancelled. Log a failure once until a write succeeds.

        posd writes the text under another name and renames the file, so a reader always finds a complete text.
        node_exporter reads `*.prom` only, as another user.
        """
        settings, failing = self.daemon.config.metrics, False
        while (path := settings.textfile) is not None:
            text = await self.text()
            try:
                # on a thread, because the disk of the file may not respond
                await asyncio.to_thread(files.replace, path, text.encode(), 0o644)
            except OSError as error:
                if not failing:
                    detail = "the directory must exist, and be writable for posd; posd tries again by itself"
                    reason = f"cannot write {path} ({error.strerror or error})"
                    log.warning("metrics.not_written", error=reason, detail=detail)
                failing = True
            else:
                if failing:
                    log.info("metrics.written", detail=str(path))
                failing = False
            await tick(settings.textfile_seconds)


def _age(at: str | None, now: datetime) -> float:
    """Return the age of a time in seconds. Return 0 for None, and for a time in the future."""
    return 0.0 if at is None else max(0.0, round((now - parse_iso(at)).total_seconds(), 3))


def _each(words: Iterable[str], counts: Mapping[str, int]) -> Mapping[str, int]:
    """Return `counts`, with 0 for each of `words` that it lacks."""
    return {**dict.fromkeys(map(str, words), 0), **counts}


def _files(database: Path) -> Iterator[Samples]:
    disk, log_size = read_disk(database), None
    with suppress(OSError):
        log_size = database.with_name(database.name + "-wal").stat().st_size
    yield "posd_database_bytes", disk.database_bytes
    yield "posd_database_wal_bytes", log_size
    yield "posd_disk_free_bytes", disk.free_bytes
    yield "posd_disk_size_bytes", disk.size_bytes
