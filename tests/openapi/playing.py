"""A day of a shop in which every call is made, and every problem that can be brought about comes."""

import asyncio
import json
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
from zeroconf.asyncio import AsyncZeroconf

from posd.base.times import iso
from posd.clock.rules import StoredClock
from posd.storage import marks
from posd.terminals.commission import Commission
from tests.e2e.test_backup import posd_command
from tests.openapi.described import Described
from tests.support.daemon import Daemon, Reply, running
from tests.support.events import body as event_body
from tests.support.events import event
from tests.support.https import deliver
from tests.support.ports import reserve
from tests.support.prints import RECEIPT, Job
from tests.support.prints import knowing as print_knowing
from tests.support.shop import (
    AMOUNT,
    OFFLINE,
    QUIET,
    Payment,
    Shop,
    acknowledging,
    answering,
    hanging_up,
    held,
    knowing,
)
from tests.support.streams import collect, stream
from tests.support.terminal import nowhere, scripted_terminal, taking_print
from tests.support.webhooks import attention
from tests.terminals.announcing import DISCOVERY
from tests.terminals.test_identity import announce, plain

#: Nothing listens where it should be.
GONE = "SN-GONE"
#: Two devices answer under it.
TWICE = "SN-TWICE"
BY_ANA = {"operator": "Ana", "note": "the display says so"}
#: What the examples of `invalid_request` are the answers to, by call: a query, or a body.
WRONG: dict[str, str | dict[str, Any]] = {
    "start_transaction": {"terminal": "SN-0001", "amount": {"iva": -1.20, "subtotal_iva": 10.00}},
    "release_transaction": {"operator": "Ana"},
    "resolve_transaction": {"result": "paid", **BY_ANA},
    "acknowledge_transaction": {"code": "gap", "operator": "Ana"},
    "list_transactions": "?limit=0",
    "await_outcome": "?timeout=-1",
    "start_print_job": {"terminal": "SN-0001"},
    "resolve_print_job": {"result": "printed", **BY_ANA},
    "acknowledge_print_job": {"code": "print_stuck", "operator": "Ana"},
    "await_print_job": "?timeout=-1",
    "list_print_jobs": "?limit=0",
    "list_terminals": "?all=maybe",
    "decide_identity": BY_ANA,
    "commission_terminal": BY_ANA | {"proven": ["abort", "refund"]},
    "read_feed": "?limit=0",
    "list_quarantine": "?limit=0",
    "get_report": "?since=2026-11-20T00:00:00Z&until=2025-11-20T00:00:00Z",
    "list_shifts": "?limit=0",
    "close_shift": {"note": "late shift"},
    "back_up": {"keep": 14},
    "confirm_restore": {"operator": "Ana"},
    "prune": {"older_than_days": -1},
    "confirm_clock": {"note": "by the phone"},
}
#: What names something that is not there, by call, where that is no id in the path.
ABSENT = {"get_report": "?shift=99"}
#: Longest that a step may take, in seconds: then it is stuck.
STUCK_SECONDS = 60.0


def gone() -> str:
    """Return the entry of the terminal where nothing listens."""
    return f'[[terminals]]\nserial = "{GONE}"\nbase_url = "https://127.0.0.1:{reserve()}"\n'


class Day:
    """Plays it. `described` notes every answer."""

    def __init__(self, shop: Shop, described: Described, home: Path) -> None:
        self.shop = shop
        self.daemon = shop.daemon
        self.described = described
        self.home = home
        self.note(shop.daemon)

    def note(self, daemon: Daemon) -> None:
        """Note every answer of this daemon from now on."""
        inner = daemon.call

        async def call(method: str, path: str, body: Any = None, **options: Any) -> Reply:
            reply = await inner(method, path, body, **options)
            self.described.note(method, f"/v1{path}", reply.status, reply.headers["content-type"], reply.body)
            return reply

        daemon.call = call  # type: ignore[method-assign]

    async def play(self) -> None:
        """Do all of it."""
        for part in (
            self.payments,
            self.finals,
            self.doubt,
            self.aborts,
            self.decisions,
            self.conflicts,
            self.printing,
            self.lists,
            self.service,
            self.operators,
            self.bodies,
            self.removal,
            self.disaster,
            self.going_back,
            self.identity,
            self.end,
        ):
            await part()

    async def admin(self, method: str, path: str, body: Any = None) -> Reply:
        return await self.daemon.call(method, path, body, socket=self.daemon.admin_socket)

    async def refused(self, code: str, method: str, path: str, body: Any = None, *, admin: bool = False) -> None:
        """Make a call that is refused by that code."""
        reply = await (self.admin(method, path, body) if admin else self.daemon.call(method, path, body))
        assert reply.json["code"] == code, (method, path, reply.body)

    async def paid(self, status: str = "APPROVAL", **request: Any) -> Payment:
        """Return a payment that has ended so."""
        payment = await self.shop.started(**request)
        previous = "TERMINAL_ACKNOWLEDGED"
        assert await payment.event(previous) == 200
        for state in ("CARD_PRESENTED", "APPROVAL_REQUESTED", status):
            assert await payment.event(state, previous) == 200
            previous = state
        return payment

    async def everything(self, payment: Payment) -> None:
        """Look at all that is shown of it."""
        for what in ("", "/outcome?timeout=0", "/events", "/history"):
            await self.daemon.call("GET", f"/transactions/{payment.identity}{what}")

    async def payments(self) -> None:
        free = {"sale": f"sale-{uuid4()}", "metadata": {"reference": "ticket"}, "options": {"is_deferred": False}}
        amount = AMOUNT | {"tip": 1, "extra_taxes": {"ice": "0.10"}}
        paid = await self.paid(amount=amount, **free)
        assert (await paid.put(amount=amount, **free)).status == 200
        await self.everything(paid)
        void = self.shop.payment()
        self.shop.terminal.start = acknowledging(paid.serial)
        self.derived = Payment(self.shop, void.identity, paid.serial)
        assert (await self.derived.put(type="void", original=paid.identity, amount=None)).status == 201
        await self.derived.event("APPROVAL")
        await self.everything(self.derived)
        await self.everything(paid)
        self.paid_one = paid
        self.free_one = await self.paid()  # no other payment goes on with it
        unlikely = await self.shop.started()
        response = event(unlikely.identity, "APPROVAL")["raw_response"] | {"authorized_amount": 0.01}
        operation = {"type": "CHARGE", "amount": {"currency": "USD", "tip": 0}}
        assert await unlikely.event("APPROVAL", raw_response=response, operation=operation) == 200
        assert attention(await unlikely.get()) >= {"approval_unlikely"}
        await self.everything(unlikely)

    async def finals(self) -> None:
        for status in ("DECLINED", "TERMINAL_CANCELED", "TERMINAL_REJECTED"):
            payment = await self.shop.started()
            assert await payment.event(status) == 200
            await self.everything(payment)
        refused = self.shop.payment()
        self.shop.terminal.start = answering(409, {"type": "TERMINAL", "code": "TER-003", "message": "busy"})
        assert (await refused.put()).json["outcome"]["result"] == "not_started"
        unsent = Payment(self.shop, str(uuid4()), GONE)
        assert (await unsent.put()).json["outcome"]["evidence"][0]["kind"] == "unsent"
        await self.everything(refused)
        await self.everything(unsent)

    async def doubt(self) -> None:
        payment = await self.shop.in_doubt()
        await self.everything(payment)
        await payment.post("reconcile")
        await self.refused("invalid_request", "POST", f"/transactions/{payment.identity}/reconcile", {"now": True})
        self.shop.terminal.search = knowing(event(payment.identity, "CARD_PRESENTED", serial=payment.serial))
        found = (await payment.post("reconcile")).json
        assert found["last_search"]["result"] == "found"
        # A person's word, and then the terminal's.
        assert (await payment.post("resolve", {"result": "canceled", **BY_ANA}, admin=True)).status == 200
        await payment.event("APPROVAL")
        assert (await payment.get())["outcome"]["supersedes"]["result"] == "canceled"
        await payment.post("acknowledge", {"code": "outcome_corrected", **BY_ANA}, admin=True)
        await self.everything(payment)
        approved = await self.shop.in_doubt()
        said = {"result": "approved", "transaction_reference": str(uuid4()), **BY_ANA}
        assert (await approved.post("resolve", said, admin=True)).status == 200
        await self.everything(approved)

    async def aborts(self) -> None:
        payment = await self.shop.started()
        at = f"/transactions/{payment.identity}/abort"
        await self.refused("invalid_request", "POST", at, {"now": True})
        for script, code in ((answering(409), "nothing_running"), (nowhere, "not_configured")):
            self.shop.terminal.abort = script
            await self.refused(code, "POST", at)
        self.shop.terminal.abort = answering(200, {})
        assert (await payment.post("abort")).status == 202
        assert await payment.event("CARD_PRESENTED") == 200
        assert await payment.event("APPROVAL_REQUESTED") == 200
        await self.refused("past_point_of_no_return", "POST", at)
        assert await payment.event("APPROVAL") == 200
        await self.refused("already_final", "POST", at)
        await self.everything(payment)

    async def decisions(self) -> None:
        payment = self.shop.payment()
        script = held(acknowledging(payment.serial))
        self.shop.terminal.start = script
        starting = asyncio.create_task(payment.put())
        async with asyncio.timeout(STUCK_SECONDS):
            await script.arrived.wait()
        at = f"/transactions/{payment.identity}"
        for call, body in (("release", BY_ANA), ("resolve", {"result": "canceled", **BY_ANA})):
            await self.refused("call_outstanding", "POST", f"{at}/{call}", body, admin=True)
        script.release.set()
        assert (await starting).status == 201
        await self.refused("not_found", "POST", f"{at}/acknowledge", {"code": "gap", **BY_ANA}, admin=True)
        assert (await payment.post("release", BY_ANA)).json["released"] is True
        await self.refused("not_abortable", "POST", f"{at}/abort")
        other = {"result": "canceled", "amount": {"iva": 1}, **BY_ANA}
        await self.refused("id_reused", "POST", f"{at}/resolve", other, admin=True)
        assert (await payment.post("resolve", {"result": "canceled", **BY_ANA}, admin=True)).status == 200
        for call, body in (("release", BY_ANA), ("resolve", {"result": "canceled", **BY_ANA})):
            await self.refused("already_final", "POST", f"{at}/{call}", body, admin=True)
        await self.everything(payment)

    async def conflicts(self) -> None:
        sale = f"sale-{uuid4()}"
        payment = await self.shop.started(sale=sale)
        new = self.shop.payment()
        at = f"/transactions/{new.identity}"
        rows: list[tuple[str, dict[str, Any]]] = [
            ("terminal_busy", {"terminal": payment.serial, "amount": AMOUNT}),
            ("sale_conflict", {"terminal": new.serial, "amount": AMOUNT, "sale": sale}),
            ("unknown_terminal", {"amount": AMOUNT}),
            ("unknown_terminal", {"terminal": "SN-NONE", "amount": AMOUNT}),
            ("terminal_offline", {"terminal": OFFLINE, "amount": AMOUNT}),
            ("unknown_original", {"terminal": new.serial, "type": "void", "original": str(uuid4())}),
            (
                "already_derived",
                {"terminal": self.paid_one.serial, "type": "void", "original": self.paid_one.identity},
            ),
            (
                "chain_conflict",
                {"terminal": self.paid_one.serial, "type": "refund", "original": self.paid_one.identity},
            ),
            (
                "amount_exceeds",
                {
                    "terminal": self.free_one.serial,
                    "type": "void",
                    "original": self.free_one.identity,
                    "amount": {"subtotal_iva0": "40.00"},
                },
            ),
            ("expired", {"terminal": new.serial, "amount": AMOUNT, "not_after": "2026-11-20T10:42:00.120Z"}),
        ]
        for code, body in rows:
            await self.refused(code, "PUT", at, body)
        other = {"terminal": payment.serial, "amount": {"subtotal_iva0": 1}, "sale": sale}
        await self.refused("id_reused", "PUT", f"/transactions/{payment.identity}", other)

    async def printing(self) -> None:
        terminal, serial = self.shop.terminal, self.shop.payment().serial
        terminal.print_start = taking_print

        async def put(**changes: Any) -> Job:
            job = Job(self.daemon, terminal, f"job-{uuid4()}")
            reply = await job.put(terminal=serial, **changes)
            assert reply.status == 201, reply.body
            return job

        job = await put(external_reference="ticket")
        at = f"/print-jobs/{job.identity}"
        assert (await job.put(terminal=serial, external_reference="ticket")).status == 200
        assert (await self.daemon.call("GET", f"{at}/outcome?timeout=0")).status == 202
        other = {"terminal": serial, "external_reference": "ticket", "document": {}}
        await self.refused("id_reused", "PUT", at, other)
        assert await job.webhook("FAILED", errorCode="E1", errorMessage="no paper") == 200
        again = await put(reprint_of=job.identity)
        for code, body in (
            ("unknown_original", {"terminal": serial, "document": RECEIPT, "reprint_of": "nobody"}),
            ("unknown_terminal", {"document": RECEIPT}),
            ("unknown_terminal", {"terminal": "SN-NONE", "document": RECEIPT}),
            ("terminal_offline", {"terminal": OFFLINE, "document": RECEIPT}),
        ):
            await self.refused(code, "PUT", f"/print-jobs/{uuid4()}", body)
        self.job, self.serial = job, serial
        terminal.print_start = answering(202, {"printJobId": "T-1", "status": "PENDING"})
        named = await put()
        terminal.print_start = hanging_up
        doubtful = Job(self.daemon, terminal, f"job-{uuid4()}")
        assert (await doubtful.put(terminal=serial)).json["phase"] == "in_doubt"
        terminal.print_start = answering(400, {"error": "no"})
        refused = Job(self.daemon, terminal, f"job-{uuid4()}")
        assert (await refused.put(terminal=serial)).json["decided_by"] == "refusal"
        script = held(taking_print)
        terminal.print_start = script
        later = Job(self.daemon, terminal, f"job-{uuid4()}")
        starting = asyncio.create_task(later.put(terminal=serial))
        async with asyncio.timeout(STUCK_SECONDS):
            await script.arrived.wait()
        waiting = Job(self.daemon, terminal, f"job-{uuid4()}")
        in_line = asyncio.create_task(waiting.put(terminal=serial))
        resolved = {"result": "COMPLETED", **BY_ANA}
        await self.refused("call_outstanding", "POST", f"/print-jobs/{later.identity}/resolve", resolved, admin=True)
        script.release.set()
        assert {(await starting).status, (await in_line).status} == {201}
        terminal.print_start = taking_print
        at = f"/print-jobs/{doubtful.identity}"
        wrong = {"code": "print_stuck", **BY_ANA}
        await self.refused("not_found", "POST", f"{at}/acknowledge", wrong, admin=True)
        right = {"code": "in_doubt", **BY_ANA}
        assert (await self.admin("POST", f"{at}/acknowledge", right)).status == 200
        assert (await self.admin("POST", f"{at}/resolve", resolved)).status == 200
        await self.refused("already_final", "POST", f"{at}/resolve", resolved, admin=True)
        assert (await self.admin("POST", f"{at}/reconcile")).json["reason"]
        terminal.print_poll = print_knowing(doubtful, status="COMPLETED")
        assert (await self.admin("POST", f"{at}/reconcile")).json["status"] == "COMPLETED"
        terminal.print_poll = None
        await self.refused("not_found", "POST", "/print-jobs/nobody/reconcile", admin=True)
        await self.refused("invalid_request", "POST", f"{at}/reconcile", {"now": True}, admin=True)
        for item in (job, again, named, doubtful, refused, later, waiting):
            for what in ("", "/outcome?timeout=0", "/history"):
                await self.daemon.call("GET", f"/print-jobs/{item.identity}{what}")

    async def lists(self) -> None:
        await self.daemon.call("GET", "/transactions?limit=2&metadata.reference=ticket&result=approved&totals=true")
        for what in ("transactions", "print-jobs"):
            assert (await self.daemon.call("GET", f"/{what}?limit=1")).json["next_cursor"]
            await self.daemon.call("GET", f"/{what}?limit=500")
        await self.daemon.call("GET", "/feed?limit=500&with=outcome,metadata")
        assert (await self.daemon.call("GET", "/feed?after=start&limit=1")).json["changes"]
        assert (await self.daemon.call("GET", "/feed?after=999999999")).json["notices"]  # a place of another database
        socket, paid = self.daemon.till_socket, self.paid_one.identity
        for path, wanted in ((f"/v1/transactions/{paid}/events", "outcome"), ("/v1/feed", "print_job")):
            operation = self.described.operation("GET", path)
            assert operation is not None
            rows = operation["responses"]["200"]["content"]["text/event-stream"]["x-posd-messages"]
            types = {row["event"]: row["data"] for row in rows}
            async with stream(socket, path.removeprefix("/v1")) as source:
                read = await collect(source, lambda message, wanted=wanted: message.event == wanted)  # type: ignore[misc]
            for message in read:
                self.described.message(types.get(message.event, rows[0]["data"]), json.loads(message.data))
            self.described.statuses[operation["operationId"], "text/event-stream"] += 1

    async def service(self) -> None:
        for path in ("/terminals", "/terminals?all=true&check=true", f"/terminals/{GONE}", "/health", "/version"):
            assert (await self.daemon.call("GET", path)).status == 200
        assert json.loads((await self.daemon.call("GET", "/openapi.json")).body) == self.described.document
        await self.refused("not_found", "GET", "/terminals/SN-NOBODY")
        seen = BY_ANA | {"proven": ["abort", "search"]}
        assert (await self.admin("POST", f"/terminals/{GONE}/commission", seen)).status == 200
        assert (await self.daemon.call("GET", f"/terminals/{GONE}")).json["commissioned"]["by"] == "Ana"
        await self.refused("not_found", "POST", "/terminals/SN-NOBODY/commission", seen, admin=True)
        assert (await self.admin("POST", f"/terminals/{GONE}/probe")).json["result"] == "no_answer"
        await self.refused("invalid_request", "POST", f"/terminals/{GONE}/probe", {"now": True}, admin=True)
        await self.refused("not_found", "POST", "/terminals/SN-NOBODY/probe", admin=True)
        transport = httpx2.AsyncHTTPTransport(uds=str(self.daemon.till_socket), verify=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://posd", timeout=90) as client:
            reply = await client.get("/metrics")
        self.described.note("GET", "/metrics", reply.status_code, reply.headers["content-type"], reply.content)

    async def operators(self) -> None:
        payment = await self.shop.started()
        assert await payment.deliver(b"{}") == 400
        assert (await self.job.call(b"{}")).status == 400
        kept = (await self.admin("GET", "/quarantine")).json["quarantine"]
        assert {item["channel"] for item in kept} == {"transactions", "print-jobs"}
        assert (await self.admin("GET", f"/quarantine/{kept[0]['id']}")).status == 200
        await self.refused("not_found", "GET", "/quarantine/9999", admin=True)
        await self.refused("invalid_request", "GET", "/quarantine/x", admin=True)
        await self.everything(payment)
        await self.daemon.call("GET", f"/print-jobs/{self.job.identity}/history")
        assert (await self.admin("POST", "/reprocess")).status == 200
        backups = self.daemon.database.with_name("backups")  # where the newest is looked for
        for _ in range(2):
            assert (await self.admin("POST", "/backup", {"into": str(backups), "keep": 1})).status == 200
        assert (await self.admin("POST", "/backup", {"path": str(self.home / "one.db")})).status == 200
        sent = await self.admin("POST", "/backup", {"send": True})
        assert sent.body.startswith(b"SQLite format 3")
        assert (await self.admin("GET", "/prune")).status == 200
        assert (await self.admin("GET", "/clock")).status == 200
        assert (await self.admin("GET", "/status?check=true")).status == 200
        assert (await self.admin("POST", "/clock/confirm", {"operator": "Ana"})).status == 200
        await self.shifts(payment)
        assert (await self.admin("POST", "/prune", {"dry_run": True, "older_than_days": 1})).status == 200
        assert (await self.admin("POST", "/prune")).status == 200
        await self.refused("not_found", "POST", "/restore/seen", BY_ANA, admin=True)

    async def shifts(self, payment: Payment) -> None:
        """Close two shifts, and one of them again; report on them and on days."""
        await self.refused("not_found", "GET", "/report?shift=last")
        first = {"operator": "Ana", "after": 0}
        assert (await self.admin("POST", "/shifts", first)).status == 201
        assert (await self.admin("POST", "/shifts", first)).status == 200
        assert await payment.event("DECLINED") == 200
        assert (await self.admin("POST", "/shifts", {"operator": "Ben", "note": "late"})).status == 201
        now = datetime.now(UTC)
        days = f"since={iso(now - timedelta(days=1))}&until={iso(now + timedelta(days=1))}"
        for query in (days, f"{days}&timezone=UTC&metadata=reference", "shift=1", "shift=last", "shift=open"):
            assert (await self.daemon.call("GET", f"/report?{query}")).json["up_to"]
        assert [item["number"] for item in (await self.daemon.call("GET", "/shifts?limit=1")).json["shifts"]] == [2]
        assert (await self.daemon.call("GET", "/shifts?before=2")).json["next_before"] is None

    def paths(self, transaction: str | None = None, job: str | None = None) -> list[tuple[str, str, dict[str, Any]]]:
        """Return method, path and description of every call of /v1, with these ids in the paths, or new ones."""
        values = {
            "client_transaction_id": transaction or str(uuid4()),
            "print_job_id": job or f"job-{uuid4()}",
            "serial": "SN-NOBODY",
            "id": 9999,
        }
        return [
            (method.upper(), path.removeprefix("/v1").format_map(values), operation)
            for path, methods in self.described.document["paths"].items()
            for method, operation in methods.items()
            if path != "/metrics"
        ]

    async def bodies(self) -> None:
        """What every call refuses."""
        for method, path, operation in self.paths():
            admin = operation["x-posd-socket"] == ["admin"]
            if admin:
                await self.refused("forbidden", method, path)
            await self.refused("invalid_request", method, f"{path}?nonsense=1", b"{}", admin=admin)
            wrong = WRONG.get(operation["operationId"], {})
            query, body = (wrong, None) if isinstance(wrong, str) else ("", wrong)
            if wrong:
                await self.refused("invalid_request", method, f"{path}{query}", body, admin=admin)
            socket = self.daemon.admin_socket if admin else None
            kind = {"content-type": "text/plain"}
            reply = await self.daemon.call(method, path, b"{}", socket=socket, headers=kind)
            assert reply.json["code"] == "unsupported_media_type"
            await self.refused("payload_too_large", method, path, b" " * 300_000, admin=admin)
            if "requestBody" in operation:
                await self.refused("malformed_json", method, path, b"{", admin=admin)
                await self.refused("invalid_request", method, path, {"nonsense": 1}, admin=admin)
            if "not_found" in json.dumps(operation["responses"].get("404", "")):
                example = operation.get("requestBody", {"content": {"application/json": {"examples": {"x": {}}}}})
                body = next(iter(example["content"]["application/json"]["examples"].values())).get("value")
                absent = path + ABSENT.get(operation["operationId"], "")
                await self.refused("not_found", method, absent, body, admin=admin)
        await asyncio.gather(*(self.stalled(*row) for row in self.paths()))

    async def stalled(self, method: str, path: str, operation: dict[str, Any]) -> None:
        """Send half a body and wait."""
        socket = self.daemon.admin_socket if operation["x-posd-socket"] == ["admin"] else self.daemon.till_socket
        reader, writer = await asyncio.open_unix_connection(str(socket))
        writer.write(f"{method} /v1{path} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\n{{".encode())
        async with asyncio.timeout(STUCK_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            body = await reader.readexactly(int(head.split("content-length: ")[1].split("\r\n")[0]))
        writer.transport.abort()
        status = int(head.split(" ")[1])
        self.described.note(method, f"/v1{path}", status, "application/problem+json", body)
        assert status == 408

    async def removal(self) -> None:
        """What was removed is not started again."""
        payment = await self.shop.started()
        assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
        assert await payment.event("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED") == 200
        job = Job(self.daemon, self.shop.terminal, f"job-{uuid4()}")
        await job.put(terminal=self.serial)
        assert await job.webhook() == 200
        await self.admin("POST", "/prune", {"older_than_days": 0})
        for method, path, operation in self.paths(payment.identity, job.identity):
            if "pruned" in json.dumps(operation["responses"].get("410", "")):
                examples = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
                body = next((item["value"] for item in examples.get("examples", {}).values()), None)
                body = body | {"terminal": payment.serial} if body and "terminal" in body else body
                await self.refused("pruned", method, path, body, admin=True)

    async def disaster(self) -> None:
        """Restore the backup, and say that an operator has looked."""
        assert await self.daemon.stop() == 0
        code, _, said = await posd_command(self.daemon, "restore", str(self.home / "one.db"))
        assert code == 0, said
        self.highest_time(datetime.now(UTC) + timedelta(hours=1))
        self.profile_changed()
        await self.daemon.start()
        assert (await self.daemon.call("GET", f"/terminals/{GONE}")).json["commission_lapsed"]
        await self.daemon.call("GET", "/health")
        await self.refused("clock_unsure", "POST", "/prune", {"older_than_days": 1}, admin=True)
        late = {"terminal": self.paid_one.serial, "amount": AMOUNT, "not_after": "2126-11-20T10:42:00.120Z"}
        await self.refused("clock_unsure", "PUT", f"/transactions/{uuid4()}", late)
        assert (await self.admin("GET", "/clock")).json["sure"] is False
        assert (await self.admin("POST", "/clock/confirm", BY_ANA)).json["sure"] is True
        assert (await self.admin("GET", "/restore")).status == 200
        assert (await self.admin("POST", "/restore/seen", BY_ANA)).status == 200
        assert await self.daemon.stop() == 0
        for suffix in ("", "-wal", "-shm"):
            self.daemon.database.with_name(self.daemon.database.name + suffix).unlink(missing_ok=True)
        code, _, said = await posd_command(self.daemon, "restore", str(self.home / "one.db"))
        assert code == 0, said
        await self.daemon.start()
        assert (await self.admin("GET", "/restore")).json["refusing"] is True
        payment = self.shop.payment()
        body = {"terminal": payment.serial, "amount": AMOUNT}
        await self.refused("restore_unseen", "PUT", f"/transactions/{payment.identity}", body)
        assert (await self.admin("POST", "/restore/seen", BY_ANA)).status == 200

    async def going_back(self) -> None:
        """Put an old copy of the database in place: the witness knows a payment that the copy does not."""
        old = self.home / "old.db"
        assert await self.daemon.stop() == 0
        shutil.copy2(self.daemon.database, old)
        await self.daemon.start()
        payment = await self.shop.started()
        assert await self.daemon.stop() == 0
        shutil.copy2(old, self.daemon.database)
        await self.daemon.start()
        assert (await payment.put()).json["phase"] == "in_doubt"
        await self.everything(payment)
        (unknown,) = (await self.admin("GET", "/restore")).json["transactions"]
        assert (unknown["client_transaction_id"], unknown["result"]) == (payment.identity, None)
        assert await payment.event("APPROVAL") == 200
        found = (await self.admin("GET", "/restore")).json
        assert (found["refusing"], found["transactions"][0]["result"]) == (True, "approved")
        (gone_back,) = (await self.admin("POST", "/restore/seen", BY_ANA)).json["gone_back"]
        assert gone_back["taken_over"] == 1
        await self.everything(payment)

    async def identity(self) -> None:
        """A second device answers under the serial of a terminal, in the middle of a payment; a person decides."""
        home = self.home / "identity"
        home.mkdir()
        network = AsyncZeroconf(interfaces=["127.0.0.1"])
        try:
            async with (
                scripted_terminal(home, TWICE, plain=True) as right,
                scripted_terminal(home, f"{TWICE}-other", plain=True) as other,
                running(home, plain(TWICE), QUIET, discovery=DISCOVERY) as daemon,
            ):
                self.note(daemon)
                right.start = acknowledging(TWICE)
                payment, new = str(uuid4()), {"terminal": TWICE, "amount": AMOUNT}
                await announce(network, daemon, "right", right.base_url, TWICE)
                assert (await daemon.call("PUT", f"/transactions/{payment}", new)).status == 201
                await announce(network, daemon, "other", other.base_url, TWICE)
                await daemon.wait_for(payment, lambda item: "identity_conflict" in attention(item))
                refused = [
                    await daemon.call("POST", f"/transactions/{payment}/abort"),
                    await daemon.call("PUT", f"/print-jobs/job-{uuid4()}", {"terminal": TWICE, "document": RECEIPT}),
                ]
                # A release frees the terminal: it is the conflict that refuses the next start.
                assert (await daemon.call("POST", f"/transactions/{payment}/release", BY_ANA)).status == 200
                refused.append(await daemon.call("PUT", f"/transactions/{uuid4()}", new))
                for reply in refused:
                    assert reply.json["code"] == "identity_conflict", reply.body
                    assert {item["base_url"] for item in reply.json["claims"]} == {right.base_url, other.base_url}
                for path in (f"/terminals/{TWICE}", "/terminals?all=true", "/health"):
                    assert (await daemon.call("GET", path)).status == 200
                at, decision = f"/terminals/{TWICE}/identity", BY_ANA | {"base_url": right.base_url}
                decided = await daemon.call("POST", at, decision, socket=daemon.admin_socket)
                assert decided.json["identity"]["conflict"] is False, decided.body
                await daemon.wait_for(payment, lambda item: "identity_conflict" not in attention(item))
                canceled = event_body(payment, "TERMINAL_CANCELED", None, TWICE)
                assert await deliver(right.requests[0].callback, canceled, daemon.ca) == 200
                for what in ("", "/outcome?timeout=0", "/events", "/history"):
                    await daemon.call("GET", f"/transactions/{payment}{what}")
                assert (len(right.requests), other.requests) == (1, [])
        finally:
            await network.async_close()

    def highest_time(self, at: datetime) -> None:
        """Have posd believe, at its next start, that it was so late already: the clock is behind."""
        with closing(sqlite3.connect(self.daemon.database)) as db, db:
            marks.clear(db, marks.CLOCK)
            marks.add(db, iso(at), marks.CLOCK, StoredClock(at, at))

    def profile_changed(self) -> None:
        """Have a terminal be one that was commissioned by another profile than it has now."""
        seen = Commission(GONE, iso(datetime.now(UTC)), "Ana", "new", None, (), "another")
        with closing(sqlite3.connect(self.daemon.database)) as db, db:
            marks.add(db, seen.at, marks.COMMISSIONED, seen)

    async def end(self) -> None:
        """Who waits is told that posd stops."""
        payment = await self.shop.started()
        job = Job(self.daemon, self.shop.terminal, f"job-{uuid4()}")
        await job.put(terminal=self.serial)
        paths = (f"/transactions/{payment.identity}/outcome", f"/print-jobs/{job.identity}/outcome")
        waiting = [asyncio.create_task(self.refused("draining", "GET", path)) for path in paths]
        async with asyncio.timeout(STUCK_SECONDS):
            while await self.connections() < len(waiting) + 1:
                pass
        assert await self.daemon.stop() == 0
        await asyncio.gather(*waiting)

    async def connections(self) -> int:
        """Return how many connections the till's socket has."""
        transport = httpx2.AsyncHTTPTransport(uds=str(self.daemon.till_socket), verify=False)
        async with httpx2.AsyncClient(transport=transport, base_url="http://posd", timeout=90) as client:
            text = (await client.get("/metrics")).text
        (line,) = (line for line in text.splitlines() if line.startswith('posd_connections{listener="till.sock"}'))
        return int(float(line.split()[1]))
