"""State of posd: checks of its health (GET /health), and the state of all parts (GET /status).

Both calls work even if the database is unreadable.
"""

import asyncio
import shlex
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from posd.api import documents
from posd.api.documents import (
    CertificateCheck,
    Check,
    Checks,
    Counters,
    DaemonStatus,
    Disk,
    Health,
    LastPayment,
    TerminalStatus,
    Version,
    overall,
)
from posd.api.metrics import DatabaseGauges, read_gauges
from posd.api.terminals import CHECK_SECONDS as PROBE_SECONDS
from posd.base.clocks import tick
from posd.base.limits import FREE_FOR_EXTRAS, FREE_FOR_PAYMENTS
from posd.base.problems import Problem, RemedyStep
from posd.base.times import iso
from posd.calls.app import json_response
from posd.clock.clock import STEPS
from posd.config import examine
from posd.config.layers import section
from posd.config.values import is_address
from posd.daemon import downtime
from posd.daemon.parts import Daemon
from posd.payments.rows import leases
from posd.records.model import Phase
from posd.storage import CommitUncertain, StorageUnavailable, changes, database_files
from posd.storage.batch import WriteTransaction
from posd.terminals.identity import EDIT, AddressConflict, OpenConflict
from posd.upkeep.restore_guard import SEEN

#: Steps for an operator if a file of the database was moved while posd ran.
PUT_BACK = (
    RemedyStep("put the same file back under its name: posd continues by itself"),
    RemedyStep("do not restart posd before that: a restart could lose what posd has recorded"),
    RemedyStep("if it cannot be put back, stop posd and restore a backup", "posd restore BACKUP"),
)


#: Advice for a full disk.
FREE = "free the disk, but never delete posd.db*, callback.key or tls/"
#: Seconds between two checks if no client requests a check.
CHECK_SECONDS = 10.0

log = structlog.get_logger("posd.daemon")


class HealthChecks(msgspec.Struct, eq=False):
    """Checks of posd and its machine. Handlers of /v1/health, /v1/status, /v1/version and /v1/openapi.json."""

    daemon: Daemon
    version: Version
    is_failing: bool = False

    async def run(self) -> None:
        """Check regularly until cancelled, so that the log shows when a part does not work."""
        while True:
            await self.checks()
            await tick(CHECK_SECONDS)

    async def checks(self) -> Checks:
        """Return all checks. Log when the first check fails, and when none fails any more."""
        checks = await self._checks()
        failing = {name: check for name, check in msgspec.structs.asdict(checks).items() if check.status == "failing"}
        if failing and not self.is_failing:
            reasons = "; ".join(f"{name}: {check.detail}" for name, check in failing.items())
            log.error("posd.failing", error=reasons, detail="; ".join(check.todo for check in failing.values()))
        elif self.is_failing and not failing:
            log.info("posd.recovered")
        self.is_failing = bool(failing)
        return checks

    async def get_health(self, _request: Request) -> Response:
        """Return the response to `GET /health`: 200 if ok or degraded, 503 if failing, with the text of each check."""
        checks = await self.checks()
        status = overall(checks)
        return json_response(Health(status, checks), 503 if status == "failing" else 200)

    async def get_version(self, _request: Request) -> Response:
        """Return the response to `GET /version`."""
        return json_response(self.version)

    async def get_openapi(self, _request: Request) -> Response:
        """Return the description of the API (`GET /openapi.json`).

        The first call builds it on a thread, in about 0.1 s.
        """
        from posd.api import openapi

        return Response(await asyncio.to_thread(openapi.document), media_type="application/json")

    async def get_status(self, request: Request) -> Response:
        """Return the response to `GET /status`. With `check=true`, first probe terminals without a recent probe."""
        parts, fleet = self.daemon, self.daemon.fleet
        if request.state.query["check"]:
            await fleet.check_stale(PROBE_SECONDS)
        checks = await self.checks()
        figures: DatabaseGauges | None = None
        last, held = dict[str, LastPayment](), dict[str, str]()
        with suppress(Problem):
            figures, last, held = await parts.context.read(partial(stored, serials=list(fleet.serials)))
        terminals = fleet.documents(held, everything=False)
        newest = await parts.backups.newest()
        return json_response(
            DaemonStatus(
                at=iso(parts.now()),
                started_at=iso(parts.started.at(parts.now())),
                uptime_seconds=round(parts.started.seconds, 1),
                version=self.version,
                health=Health(overall(checks), checks),
                configuration=parts.in_force.state(),
                clock=checks.clock,
                certificate=checks.certificate,
                restore=checks.restore,
                relay=None,
                disk=read_disk(parts.config.database.path),
                backup_at=None if newest is None else iso(datetime.fromtimestamp(newest[0], UTC)),
                counters=None if figures is None else _counters(figures),
                terminals=[
                    TerminalStatus(**msgspec.structs.asdict(item), last_payment=last.get(item.serial))
                    for item in terminals
                ],
            )
        )

    async def _checks(self) -> Checks:
        return Checks(
            storage=await self._storage(),
            local_api=self._local_api(),
            webhook_listener=await self._listener(),
            certificate=self._certificate_check(),
            discovery=self._browsing(),
            clock=self._clock(),
            configuration=self.daemon.in_force.check(),
            restore=self._restore(),
            identity=await self._identity(),
        )

    async def _storage(self) -> Check:
        store, quotas = self.daemon.store, self.daemon.quotas
        try:
            await self.daemon.context.read(changes.newest_seq)
        except Problem as problem:
            return Check.of(
                "failing", problem.detail, RemedyStep("check the disk of this machine"), reason="unreadable"
            )
        if store.write_error is not None:
            with suppress(StorageUnavailable, CommitUncertain):
                await store.write(_probe)  # an idle shop writes nothing, so a test write shows the recovery
        if (moved := store.writer.moved) is not None:
            return Check.of("failing", f"nothing can be recorded: {moved}", *PUT_BACK, reason="file_moved")
        if store.write_error is not None:
            words = f"the last write failed: {store.write_error}"
            return Check.of("failing", words, self._free(), reason="write_failed")
        if quotas.short_of(FREE_FOR_PAYMENTS):
            words = "the disk is nearly full: new payments are refused, so the events of open ones can be recorded"
            return Check.of("failing", words, self._free(), reason="full_for_payments")
        if quotas.short_of(FREE_FOR_EXTRAS):
            words = "the disk is nearly full: print jobs are refused, so there is room for payments"
            return Check.of("degraded", words, self._free(), reason="full_for_extras")
        if (large := database_files.log_trouble(self.daemon.config.database.path)) is not None:
            return Check.of("degraded", *large, reason="large_log")
        return _well("the database can be read, and the last write succeeded")

    def _free(self) -> RemedyStep:
        """Return the step that shows the large files on the disk."""
        disk = database_files.mount_point(self.daemon.config.database.path.parent)
        return RemedyStep(FREE, f"sudo du -xah {shlex.quote(str(disk))} | sort -rh | head -n 20")

    def _local_api(self) -> Check:
        lost = {path: item for item in self.daemon.listeners if (path := item.lost_path) is not None}
        if lost:
            of_tills = any(not item.policy.state["admin"] and not item.policy.state["feed"] for item in lost.values())
            words = f"no client can connect to {', '.join(lost)}: the socket was removed or replaced"
            restart = RemedyStep("", "sudo systemctl restart posd.socket posd")
            return Check.of("failing" if of_tills else "degraded", words, restart, reason="socket_lost")
        return _well("the local sockets are in place")

    async def _listener(self) -> Check:
        lan = self.daemon.listeners[0]
        if not lan.listening:
            restart = RemedyStep("restart posd", "sudo systemctl restart posd")
            return Check.of("failing", "the webhook listener does not accept connections", restart, reason="closed")
        if (error := lan.accept_error) is not None:
            return Check.of(
                "failing",
                f"the webhook listener cannot accept connections now ({error})",
                RemedyStep("check the other programs of this machine"),
                reason="cannot_accept",
            )
        if (found := await self.daemon.presence.look()) is not None:
            absence, left = found
            words = downtime.words(absence, len(left))
            return Check.of("degraded", words, *downtime.steps(left), reason="was_away")
        return _well(f"listening on port {lan.port}, {lan.connections} connections")

    def _certificate_check(self) -> CertificateCheck:
        found = self.daemon.certificate.check()
        hosts = self.daemon.fleet.hosts()
        complete = {serial for host, serial in hosts.items() if is_address(host)} >= set(self.daemon.fleet.serials)
        if (refused := self.daemon.distrust.words(hosts, complete=complete)) is not None:
            state: documents.State = "degraded" if found.status == "ok" else found.status
            steps = found.commands or [RemedyStep("see what each of these devices needs", "posd tls status")]
            found = Check.of(state, f"{found.detail}; {refused}", *steps, reason=found.reason or "refused")
        info = self.daemon.certificate.served.info
        served = documents.Served(
            info.fingerprint_sha256, not_after=iso(info.not_after), port=self.daemon.listeners[0].port
        )
        refusals = list(self.daemon.distrust.recent().values())
        return CertificateCheck(**msgspec.structs.asdict(found), served=served, refused_by=refusals)

    def _browsing(self) -> Check:
        if self.daemon.discovery is None:
            return _well("switched off; terminals need a base_url in the configuration")
        if self.daemon.discovery.trouble is not None:
            return Check.of(
                "degraded",
                f"{self.daemon.discovery.trouble}; terminals with a base_url work",
                RemedyStep("check the network of this machine"),
                reason="not_listening",
            )
        return _well("listening for announcements")

    async def _identity(self) -> Check:
        found = {item.serial: item.conflict for item in self.daemon.fleet if item.conflict is not None}
        conflicts = list(found.values())
        if conflicts:
            words = "; ".join(item.what for item in conflicts)
            # Searches on the other device are still allowed. Only starts and aborts are blocked.
            asked = all(item.kind is AddressConflict.SERIAL for item in conflicts)
            sent = "no payment is sent there" if asked else "nothing is sent there"
            return Check.of(
                "degraded",
                f"{words}: {sent}",
                *[step for serial in found for step in await self._placed(serial, found[serial])],
                reason=conflicts[0].kind,
            )
        if rivals := [terminal.serial for terminal in self.daemon.fleet if terminal.addresses.has_rivals]:
            return _well(
                f"each terminal is called at its trusted address; another device answers as {', '.join(rivals)}, "
                "and nothing is sent to it (posd terminals)"
            )
        return _well("no two devices claim to be the same terminal")

    async def _placed(self, serial: str, conflict: OpenConflict) -> list[RemedyStep]:
        """Return the steps for a conflict. The step that edits the configuration names the file and the line."""
        if not any(step.command == EDIT for step in conflict.steps):
            return list(conflict.steps)
        editor = await asyncio.to_thread(_editor, self.daemon.config.file, serial)
        return [
            msgspec.structs.replace(step, command=editor) if step.command == EDIT else step for step in conflict.steps
        ]

    def _clock(self) -> Check:
        if (doubt := self.daemon.clock.doubt) is not None and (reason := self.daemon.clock.reason) is not None:
            waits = "Payments continue; nothing is removed, and no certificate is made or renewed, until posd trusts it"
            return Check.of("degraded", f"{doubt}. {waits}", *STEPS, reason=reason)
        return _well(iso(self.daemon.clock.reading.wall))

    def _restore(self) -> Check:
        restore_guard = self.daemon.restore_guard
        if words := restore_guard.words:
            if restore_guard.refuses:
                words += " No payment is started under a new id until a person has confirmed this."
            if restore_guard.count:
                words += f" {_payments(restore_guard.count)} taken over by id only."
            look = RemedyStep("check them (they are listed), then", SEEN)
            return Check.of("degraded", words, look, reason="refusing" if restore_guard.refuses else "unseen")
        if (error := restore_guard.witness_error) is not None:
            words = f"the witness beside the database cannot be written ({error}); payments go on"
            may_write = RemedyStep("check that posd may write beside its database")
            return Check.of("degraded", words, RemedyStep(FREE), may_write, reason="no_witness")
        if restore_guard.mention is not None:
            return _well(f"the witness of the last run could not be used at the start: {restore_guard.mention}")
        return _well("the database has everything that its witness has")


def _editor(file: Path, serial: str) -> str:
    """Return the command that opens the configuration at the section of a terminal.

    The call blocks, because the configuration is read again.
    """
    config, _ = examine(file, check_files=False)
    serials = [terminal.serial for terminal in config.terminals] if config is not None else []
    at, line = section(file, serials, serial)
    return f"{EDIT} {shlex.join([*([] if line is None else [f'+{line}']), str(at)])}"


def _probe(unit: WriteTransaction) -> None:
    """Write a row as a test of the disk. A full disk accepts an empty commit, so a row is needed."""
    unit.db.execute("DELETE FROM marks WHERE kind = 'probe'")
    unit.db.execute("INSERT INTO marks (at, kind, detail) VALUES (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), 'probe', '')")


def _payments(count: int) -> str:
    return "1 payment was" if count == 1 else f"{count} payments were"


def _well(detail: str) -> Check:
    return Check.of("ok", detail)


# GET /status.

#: posd looks for the last payment of each terminal first among this number of newest payments.
RECENT = 1000
_FIELDS = "SELECT client_transaction_id, created_at, phase, CASE WHEN json_valid(outcome) THEN outcome ->> 'result' END"
#: SQL: the newest of the recent payments, by terminal. The order of recording does not depend on the clock.
_RECENT = (
    f"SELECT terminal, max(rowid) FROM (SELECT rowid, terminal FROM transactions ORDER BY rowid DESC LIMIT {RECENT})"  # noqa: S608
    " GROUP BY terminal"
)
_RECORDED = f"{_FIELDS} FROM transactions WHERE rowid = ?"
#: SQL: the last payment of a terminal without a recent payment.
_LAST = (
    f"{_FIELDS} FROM transactions INDEXED BY transactions_terminal WHERE terminal = ?"
    " ORDER BY created_at DESC, client_transaction_id DESC LIMIT 1"
)


def stored(
    db: sqlite3.Connection, serials: Sequence[str]
) -> tuple[DatabaseGauges, dict[str, LastPayment], dict[str, str]]:
    """Return the gauges of the database, and the last payments and leases of these terminals by serial."""
    recent = dict(db.execute(_RECENT))
    last = {
        serial: LastPayment(*row)
        for serial in serials
        for row in (db.execute(_RECORDED, (recent[serial],)) if serial in recent else db.execute(_LAST, (serial,)))
    }
    return read_gauges(db), last, dict(leases(db))


def _counters(figures: DatabaseGauges) -> Counters:
    return Counters(
        open_payments=sum(figures.open.values()),
        in_doubt=figures.open.get(Phase.IN_DOUBT, 0),
        attention=sum(figures.attention.values()),
        open_print_jobs=sum(figures.open_prints.values()),
        print_attention=sum(figures.print_attention.values()),
        quarantine=figures.quarantined,
    )


def read_disk(database: Path) -> Disk:
    """Return the free space of the database's disk, and the size of the database.

    A value is None if the system does not report it.
    """
    (free, size), used = database_files.disk_space(database.parent) or (None, None), None
    with suppress(OSError):
        used = database.stat().st_size
    return Disk(free, size, used)
