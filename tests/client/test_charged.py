"""A till never reads "not paid" for a charged payment, and keeps the record, after any fault of posd."""

import asyncio
import re
import sqlite3
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any
from uuid import uuid4

import httpx2
import pytest
import pytest_asyncio

from posd.base.limits import CONNECTIONS_OF_PROCESS
from posd.base.times import iso
from posd.client import AsyncPosd, Paid, PaymentStore, PosdError, StoredPayment
from posd.client.documents import decode, encode
from posd.simulator import Simulator
from posd.storage import marks
from tests.client.both import InThreads
from tests.e2e.test_backup import back_up, lose, posd_command
from tests.rig.daemon import Daemon
from tests.rig.simulated import simulated
from tests.rig.streams import ask

Client = type[AsyncPosd | InThreads]
pytestmark = [pytest.mark.quick(1), pytest.mark.parametrize("client", [AsyncPosd, InThreads], ids=["async", "sync"])]

PAID, DECLINED = "5.00", "9000.04"
#: Members that an older posd does not have.
NEW = {"next_step", "never_started", "records_missing_from", "records_missing_until"}
NEW_OF_OUTCOME = {"client_transaction_id", "terminal", "type", "sale", "amount"}


@dataclass
class Till:
    """A till that ended before it booked its payments. One payment was charged, one payment was declined, and one
    payment was never sent.
    """

    daemon: Daemon
    simulator: Simulator
    store: PaymentStore
    charged: str
    declined: str
    unsent: str

    @property
    def sent(self) -> list[str]:
        """Ids of the requests that the terminal received."""
        return [entry["client_transaction_id"] for entry in self.simulator.ledger.of("start")]

    async def settle(self, client: Client, socket: Path, **named: Any) -> dict[str, str]:
        """Settle the stored payments as in docs/guides/client.md. Return the cashier's text for each payment."""
        async with client(socket, patience=0, **named) as posd:
            return {stored.id: await self._settle(posd, stored) for stored in self.store.open_payments()}

    async def _settle(self, posd: AsyncPosd | InThreads, stored: StoredPayment) -> str:
        payment = posd.transaction(stored)
        said = "a person looks"
        try:
            if not await payment.is_known(within=0):
                said = "not paid"
            elif (effect := (await payment.outcome(timeout=0)).effect) is not Paid.UNCLEAR:
                said = "paid" if effect is Paid.PAID else "not paid"
        except PosdError as error:
            if error.never_started:
                said = "not paid"
        if said != "a person looks":
            self.store.remove(stored.id)
        return said

    async def refused(self, client: Client, socket: Path, stored: StoredPayment) -> PosdError:
        """Repeat the call of a payment. Return the refusal."""
        async with client(socket, patience=0, store=self.store.save) as posd:
            with pytest.raises(PosdError) as told:
                await posd.start(stored)
        return told.value

    def stored(self, identity: str) -> StoredPayment:
        return next(payment for payment in self.store.open_payments() if payment.id == identity)


@pytest_asyncio.fixture
async def till(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Till]:
    store = PaymentStore(tmp_path / "open-payments")
    async with simulated(tmp_path, {"SIM-1": ""}) as (daemon, simulators):
        await back_up(daemon, tmp_path / "backup.db")
        identities = []
        async with AsyncPosd(daemon.till_socket, store=store.save) as posd:
            for amount in (PAID, DECLINED):
                payment = await posd.charge(uuid4(), amount)
                identities.append((await payment.outcome()).id)
        unsent = StoredPayment(str(uuid4()), store.open_payments()[0].body, datetime.now(UTC))
        yield Till(daemon, simulators["SIM-1"], store, *identities, store.save(unsent).id)


async def test_without_a_fault_each_payment_has_its_result(till: Till, client: Client) -> None:
    said = await till.settle(client, till.daemon.till_socket)
    assert said == {till.charged: "paid", till.declined: "not paid", till.unsent: "not paid"}
    assert till.store.open_payments() == []


async def test_even_after_a_confirmed_restore_a_lost_payment_needs_a_person(
    till: Till, client: Client, tmp_path: Path
) -> None:
    daemon = till.daemon
    await daemon.stop()
    lose(daemon.database, "", ".witness")
    assert (await posd_command(daemon, "restore", str(tmp_path / "backup.db"), "--yes"))[0] == 0
    move_back(till)
    await daemon.start()
    everyone = [till.charged, till.declined, till.unsent]
    #: The till stores this payment after the period in which records may be missing.
    later = StoredPayment(str(uuid4()), till.stored(till.charged).body, datetime.now(UTC))
    for seen in (False, True):
        if seen:
            assert (await posd_command(daemon, "restore", "--seen", "--operator", "ana"))[0] == 0
        assert await till.settle(client, daemon.till_socket) == dict.fromkeys(everyone, "a person looks")
        for path in ("", "/outcome"):
            reply = await daemon.call("GET", f"/transactions/{till.charged}{path}")
            assert (reply.status, reply.json["never_started"]) == (404, False)
        async with client(daemon.till_socket, patience=0) as posd:
            assert not await posd.transaction(later).is_known(within=0)
            with pytest.raises(PosdError) as waited:
                await posd.transaction(later).outcome()
        assert waited.value.never_started
        if not seen:
            for identity in everyone:
                error = await till.refused(client, daemon.till_socket, till.stored(identity))
                assert (error.next_step, error.never_started) == ("ask_person", False)
            assert (await till.refused(client, daemon.till_socket, later)).never_started
            till.store.remove(later.id)
    assert [payment.id for payment in till.store.open_payments()] == everyone
    assert till.sent == [till.charged, till.declined]


def move_back(till: Till) -> None:
    """Set the time of the till's stored payments to the day before yesterday, and the time of the restore to
    yesterday.
    """
    today = datetime.now(UTC)
    for file in till.store.folder.iterdir():
        stored_on = (today - timedelta(days=2)).date().isoformat()
        file.write_text(re.sub(r'(?<="stored_at":")[0-9-]+', stored_on, file.read_text()))
    with closing(sqlite3.connect(till.daemon.database)) as db, db:
        yesterday = iso(today - timedelta(days=1))
        changed = db.execute(
            "UPDATE marks SET detail = json_set(detail, '$.at', ?) WHERE kind = ?", (yesterday, marks.RESTORED)
        )
        assert changed.rowcount == 1


async def test_a_stopped_posd_gives_no_result(till: Till, client: Client) -> None:
    await till.daemon.stop()
    everyone = [till.charged, till.declined, till.unsent]
    assert await till.settle(client, till.daemon.till_socket) == dict.fromkeys(everyone, "a person looks")
    for identity in everyone:
        error = await till.refused(client, till.daemon.till_socket, till.stored(identity))
        assert (error.next_step, error.never_started) == ("same_call", False)
    await till.daemon.start()
    async with client(till.daemon.till_socket, store=till.store.save) as posd:
        for identity in everyone:
            await (await posd.start(till.stored(identity))).outcome()
    assert till.sent == everyone
    assert (await till.settle(client, till.daemon.till_socket))[till.charged] == "paid"


async def test_a_posd_without_free_connections_gives_no_result(till: Till, client: Client) -> None:
    socket = till.daemon.till_socket
    mine = [await ask(socket, "/version") for _ in range(CONNECTIONS_OF_PROCESS.value)]
    for item in mine:
        await item.reply()
    everyone = [till.charged, till.declined, till.unsent]
    assert await till.settle(client, socket) == dict.fromkeys(everyone, "a person looks")
    for identity in everyone:
        error = await till.refused(client, socket, till.stored(identity))
        assert (error.next_step, error.never_started, error.retry_after_seconds) == ("same_call", False, 1)

    loop, told = asyncio.get_running_loop(), list[PosdError]()

    def on_away(error: PosdError) -> None:
        told.append(error)
        loop.call_soon_threadsafe(lambda: [item.hang_up() for item in mine])

    async with client(socket, store=till.store.save, on_away=on_away) as posd:
        await (await posd.start(till.stored(till.unsent))).outcome()
    assert told
    assert till.sent == everyone


async def test_an_older_posd_never_proves_that_nothing_started(till: Till, client: Client, tmp_path: Path) -> None:
    with older(till.daemon.till_socket, tmp_path / "older.sock") as socket:
        async with client(socket) as posd:
            for identity in (till.charged, till.declined, till.unsent):
                with pytest.raises(PosdError) as told:  # the older posd does not say whether the payment was a refund
                    await posd.transaction(identity).outcome()
                assert not told.value.never_started
        other = StoredPayment(till.unsent, b'{"type":"charge","amount":{"subtotal_iva0":1},"terminal":"SN-NONE"}')
        till.store.remove(till.unsent)
        error = await till.refused(client, socket, other)
        assert (error.next_step, error.never_started) == ("ask_person", False)
        said = await till.settle(client, socket)
    assert said == {till.charged: "paid", till.declined: "not paid", till.unsent: "a person looks"}
    assert [payment.id for payment in till.store.open_payments()] == [till.unsent]


@contextmanager
def older(socket: Path, before: Path) -> Iterator[Path]:
    """Serve posd's local API on another socket without the new members, like an older version."""
    transport = httpx2.HTTPTransport(uds=str(socket))

    class Handler(BaseHTTPRequestHandler):
        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            with httpx2.Client(transport=transport, base_url="http://posd") as posd:
                reply = posd.request(self.command, self.path, content=body, headers=kept)
            self.send_response(reply.status_code)
            self.send_header("Content-Type", reply.headers["content-type"])
            self.end_headers()
            document = decode(reply.content)
            new = NEW_OF_OUTCOME if "result" in document else NEW if "code" in document else set()
            self.wfile.write(encode({name: value for name, value in document.items() if name not in new}))

        do_GET = do_PUT = handle_any  # noqa: N815 - the base class defines this name

        def address_string(self) -> str:
            return "till"

        def log_message(self, *args: object) -> None:
            pass

    class Server(ThreadingMixIn, UnixStreamServer):
        daemon_threads = False  # `server_close` would wait for the threads of open connections

    with Server(str(before), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield before
        finally:
            server.shutdown()
            thread.join()
