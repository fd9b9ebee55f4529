"""Fill a database with the daemon that is here, for the tests of the versions after it.

    python -m tests.store.released [FILE]

To be run before a migration is added, with the code that is to be left behind: payments and print jobs in every phase
and with every end, some that a person has to look at, and callbacks that were refused. It uses the command line and the
local API alone, and a terminal of its own, so that it runs with code of any age.
"""

import asyncio
import gzip
import json
import sqlite3
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2

HERE = Path(__file__).parent
#: Terminals: each payment that stays open has one of its own. The last one is switched off.
TERMINALS = 9
AMOUNT = {"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0}
#: How the terminal answers a start -> status and body; None closes the connection.
ACKNOWLEDGED, REFUSED, LOST = "acknowledged", "refused", "lost"
COURSE = ("TERMINAL_ACKNOWLEDGED", "CARD_PRESENTED", "APPROVAL_REQUESTED", "APPROVAL")

#: number -> (type, how the start is answered, states that come, further fields of the request)
PAYMENTS: Mapping[int, tuple[str, str, tuple[str, ...], dict[str, Any]]] = {
    1: ("charge", ACKNOWLEDGED, COURSE, {"metadata": {"reference": "ticket 1", "till": 3}, "sale": "sale 1"}),
    2: ("charge", ACKNOWLEDGED, (*COURSE[:3], "DECLINED"), {}),
    3: ("charge", ACKNOWLEDGED, (*COURSE[:2], "TERMINAL_CANCELED"), {"metadata": {"reference": "ticket 3"}}),
    4: ("charge", ACKNOWLEDGED, (COURSE[0], "TERMINAL_REJECTED"), {}),
    5: ("charge", REFUSED, (), {}),
    6: ("pre-auth", ACKNOWLEDGED, COURSE, {}),
    7: ("charge", ACKNOWLEDGED, COURSE[:2], {"metadata": {"reference": "stays open"}}),
    8: ("charge", LOST, (), {}),
    9: ("charge", ACKNOWLEDGED, (COURSE[0], "SOMETHING_NEW"), {}),
    10: ("charge", ACKNOWLEDGED, COURSE[:1], {}),
    11: ("charge", ACKNOWLEDGED, (*COURSE, "DECLINED"), {}),
}
#: Payments after which their terminal is not free.
STAY_OPEN = (7, 8, 9, 10)
#: Its callback is refused: it is no event.
REFUSED_CALLBACK = 10
JOBS: Mapping[int, tuple[str, str | None]] = {
    1: (ACKNOWLEDGED, "COMPLETED"),
    2: (ACKNOWLEDGED, "FAILED"),
    3: (REFUSED, None),
    4: (ACKNOWLEDGED, None),
}


def name(number: int) -> str:
    """Return the id of a payment."""
    return str(UUID(int=number, version=4))


def serial(number: int) -> str:
    """Return the terminal that a payment is made on."""
    return f"SN-{STAY_OPEN.index(number) + 2 if number in STAY_OPEN else 1}"


class Terminal:
    """One terminal that answers as it is told, and keeps the callback addresses that it was given."""

    def __init__(self) -> None:
        self.answer = ACKNOWLEDGED
        self.callbacks: dict[str, str] = {}

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection."""
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].split(b":")[1]) if length else 0)
                path = head.split(b" ", 2)[1].decode()
                reply = self._reply(path, json.loads(body or b"{}"))
                if reply is None:
                    break
                status, document = reply
                content = json.dumps(document).encode()
                writer.write(
                    b"HTTP/1.1 %d OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b"
                    % (status, len(content), content)
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        writer.close()

    def _reply(self, path: str, asked: Mapping[str, Any]) -> tuple[int, Any] | None:
        if "search" in path:
            return 503, {}
        identity = asked.get("client_transaction_id") or asked.get("printJobId")
        if identity is None:
            return 404, {}
        for field in ("events_webhook_url", "webhookUrl"):
            if field in asked:
                self.callbacks[identity] = asked[field]
        if self.answer == LOST:
            return None
        if self.answer == REFUSED:
            return 422, {"message": "refused"}
        if "printJobId" in asked:
            return 202, {"printJobId": identity, "status": "PENDING"}
        return 200, {"status": "TERMINAL_ACKNOWLEDGED", "terminal": {}, "client_transaction_id": identity}


def event(number: int, place: int, status: str, previous: str | None) -> dict[str, Any]:
    """Return an event as the spec shows it."""
    document: dict[str, Any] = {
        "event_id": str(UUID(int=number * 1000 + place, version=4)),
        "occurred_at": "2026-11-20T10:42:03.120Z",
        "status": status,
        "merchant_id": "M-1",
        "client_transaction_id": name(number),
        "terminal": {"serial_number": serial(number), "brand": "Brand", "model": "Model"},
    }
    if previous is not None:
        document["previous_status"] = previous
    if status not in ("TERMINAL_ACKNOWLEDGED", "TERMINAL_CANCELED"):
        document["reading_type"] = "CONTACTLESS"
    if status in ("DECLINED", "TERMINAL_REJECTED"):
        document["failure_reason"] = {"type": "T", "code": "51", "message": "no"}
    if status == "APPROVAL":
        document["raw_response"] = {
            "transaction_reference": str(UUID(int=number * 1_000_000, version=4)),
            "ticket_number": f"{number:06}",
            "authorized_amount": 11.20,
            "card_type": "credit",
            "franchise": "VISA",
            "message_fields": {"F38": "A1B2C3", "F39": "00"},
        }
    return document


class Street:
    """The daemon and who speaks with it."""

    def __init__(self, home: Path, terminals: list[Terminal], api: httpx2.AsyncClient, lan: httpx2.AsyncClient) -> None:
        self.home = home
        self.terminals = terminals
        self._api = api
        self._lan = lan

    async def call(self, method: str, path: str, body: Any = None) -> Any:
        """Call the local API; return status and document."""
        reply = await self._api.request(method, f"http://posd/v1{path}", json=body)
        return reply.status_code, reply.json()

    async def tell(self, identity: str, terminal: Terminal, body: Any) -> None:
        """Call back."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        await self._lan.post(terminal.callbacks[identity], content=content)

    async def pay(self, number: int) -> None:
        """Run a payment as far as the table says."""
        kind, answer, states, fields = PAYMENTS[number]
        terminal = self.terminals[int(serial(number)[3:]) - 1]
        terminal.answer = answer
        request = {"terminal": serial(number), "type": kind, "amount": AMOUNT, **fields}
        status, document = await self.call("PUT", f"/transactions/{name(number)}", request)
        if status == 501:  # what this version has not
            request = {"terminal": serial(number), "amount": AMOUNT} | {"metadata": fields.get("metadata", {})}
            status, document = await self.call("PUT", f"/transactions/{name(number)}", request)
        assert status == 201, document
        previous = None
        for place, state in enumerate(states):
            await self.tell(name(number), terminal, event(number, place, state, previous))
            previous = state
        if number == REFUSED_CALLBACK:
            await self.tell(name(number), terminal, b"half an eve")

    async def print_out(self, number: int) -> None:
        """Run a print job as far as the table says."""
        answer, end = JOBS[number]
        terminal = self.terminals[0]
        terminal.answer = answer
        request = {"terminal": "SN-1", "document": {"text": f"receipt {number}"}}
        status, document = await self.call("PUT", f"/print-jobs/job-{number}", request)
        if status in (404, 501):  # this version does not print
            return
        assert status == 201, document
        if end is not None:
            webhook: dict[str, Any] = {"printJobId": f"job-{number}", "status": end, "externalReference": ""}
            if end == "FAILED":
                webhook |= {"errorCode": "E7", "errorMessage": "out of paper"}
            await self.tell(f"job-{number}", terminal, webhook)

    async def fill(self) -> None:
        """Do everything that this version can."""
        for number in PAYMENTS:
            await self.pay(number)
        request = {"terminal": f"SN-{TERMINALS}", "amount": AMOUNT}  # it is switched off
        await self.call("PUT", f"/transactions/{name(20)}", request)
        self.terminals[0].answer = ACKNOWLEDGED
        capture = {"terminal": "SN-1", "type": "capture", "amount": AMOUNT, "original": name(6)}
        status, _ = await self.call("PUT", f"/transactions/{name(21)}", capture)
        if status == 201:
            previous = None
            for place, state in enumerate(COURSE):
                await self.tell(name(21), self.terminals[0], event(21, place, state, previous))
                previous = state
        for number in JOBS:
            await self.print_out(number)


async def run(target: Path) -> None:
    """Fill a database and write it to `target`, compressed."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="posd-")))
        terminals, ports = [], []
        for _ in range(TERMINALS):
            terminal = Terminal()
            server = await asyncio.start_server(terminal.take, "127.0.0.1", 0)
            terminals.append(terminal)
            ports.append(server.sockets[0].getsockname()[1])
            if len(terminals) == TERMINALS:
                server.close()
            else:
                stack.callback(server.close)
        config = home / "config.toml"
        config.write_text(_config(home, ports))
        process = await _daemon(config)
        try:
            transport = httpx2.AsyncHTTPTransport(uds=str(home / "run" / "admin.sock"))
            api = await stack.enter_async_context(httpx2.AsyncClient(transport=transport, timeout=60))
            lan = await stack.enter_async_context(httpx2.AsyncClient(verify=False, timeout=60))
            assert process.stdout is not None
            async for line in process.stdout:
                if b"posd.started" in line:
                    break
            reading = asyncio.create_task(process.stdout.read())
            await Street(home, terminals, api, lan).fill()
        finally:
            process.terminate()
            await reading
            await process.wait()
        database = home / "state" / "posd.db"
        with closing(sqlite3.connect(database)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            schema = db.execute("PRAGMA user_version").fetchone()[0]
            counts = {
                table: db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
                for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            }
        place = target if target.suffix == ".gz" else target / f"schema-{schema}.db.gz"
        place.write_bytes(gzip.compress(database.read_bytes(), mtime=0))
        sys.stdout.write(f"{place}: {place.stat().st_size} bytes, {counts}\n")


def _config(home: Path, ports: list[int]) -> str:
    return f"""
[merchant]
id = "M-1"
[local_api]
directory = "{home}/run"
till_group = ""
admin_group = ""
[webhooks]
listen = "127.0.0.1:0"
[database]
path = "{home}/state/posd.db"
[discovery]
enabled = false
""" + "".join(
        f'[[terminals]]\nserial = "SN-{number}"\nbase_url = "http://127.0.0.1:{port}"\n'
        for number, port in enumerate(ports, 1)
    )


async def _daemon(config: Path) -> "asyncio.subprocess.Process":
    command = (sys.executable, "-m", "posd", "--config", str(config))
    made = await asyncio.create_subprocess_exec(*command, "tls", "init", stdout=asyncio.subprocess.DEVNULL)
    await made.wait()
    return await asyncio.create_subprocess_exec(*command, "run", stdout=asyncio.subprocess.PIPE)


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE))
