"""A device with the token of an ended payment or print job can add reports to that record, and change nothing else."""

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any
from uuid import uuid4

import pytest

from posd.httpd.admission import PLACES_OF_STRANGER
from tests.rig.daemon import Daemon
from tests.rig.events import body
from tests.rig.https import deliver, post, status_of
from tests.rig.shop import AMOUNT, OFFLINE, Shop, acknowledging, answering
from tests.rig.webhooks import disk

#: Data of a device that is not the terminal.
STRANGE = {"brand": "Strange", "model": "Strange"}
YEN = {"amount": {"currency": "JPY"}}
Ended = tuple[str, str, str]  # the ended record: id, terminal, and callback URL


async def approved(shop: Shop) -> Ended:
    payment = await shop.started()
    await payment.approve()
    return payment.identity, payment.serial, payment.requests[0].callback


async def closed_by_a_person(shop: Shop) -> Ended:
    payment = await shop.started()
    said = {"result": "declined", "operator": "Ana", "note": "the slip says so"}
    assert (await payment.post("resolve", said, admin=True)).status == 200
    return payment.identity, payment.serial, payment.requests[0].callback


async def refused(shop: Shop) -> Ended:
    payment = shop.payment()
    shop.terminal.start = answering(409)
    assert (await payment.put()).json["outcome"]["result"] == "not_started"
    return payment.identity, payment.serial, payment.requests[0].callback


async def removed(shop: Shop) -> Ended:
    ended = await approved(shop)
    reply = await shop.daemon.call("POST", "/prune", {"older_than_days": 0}, socket=shop.daemon.admin_socket)
    assert reply.json["removed"]["transactions"] == 1, reply.body
    return ended


async def printed(shop: Shop) -> Ended:
    job, serial = str(uuid4()), shop.payment().serial
    wanted = {"terminal": serial, "document": {"text": "x"}}
    assert (await shop.daemon.call("PUT", f"/print-jobs/{job}", wanted)).status == 201
    callback = shop.terminal.prints[-1].print_callback
    assert (
        await deliver(callback, json.dumps({"printJobId": job, "status": "COMPLETED"}).encode(), shop.daemon.ca) == 200
    )
    return job, serial, callback


ENDS: Mapping[str, Callable[[Shop], Awaitable[Ended]]] = {
    item.__name__: item for item in (approved, closed_by_a_person, refused, removed, printed)
}


def late(identity: str, serial: str) -> Iterator[bytes]:
    """Yield requests that the holder of an old token can send."""
    for status in ("CARD_PRESENTED", "APPROVAL", "DECLINED", "NEW"):
        for named in (serial, OFFLINE, "SN-FOREIGN"):
            terminal = {"serial_number": named, **STRANGE}
            for moment in ("2199-01-01T00:00:00.000Z", "2001-01-01T00:00:00.000Z"):
                yield body(identity, status, terminal=terminal, operation=YEN, occurred_at=moment)
    for status in ("FAILED", "PENDING", "NEW"):
        yield json.dumps({"printJobId": identity, "status": status, "terminal": STRANGE}).encode()
    yield b"{"


async def beside(posd: Daemon, identity: str) -> dict[str, Any]:
    """Return the data of posd outside the ended record."""
    with disk(posd) as db:
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        kept = {name: db.execute(f'SELECT * FROM "{name}"').fetchall() for name in tables}
    del kept["sqlite_sequence"]
    stored = {name: [row for row in rows if identity not in str(row)] for name, rows in kept.items()}
    terminals = (await posd.call("GET", "/terminals")).json["terminals"]
    clock = (await posd.call("GET", "/clock", socket=posd.admin_socket)).json
    witness = clock["witnesses"]["terminals"]
    return {
        "stored": stored,
        # leave out posd's own observations of terminals: probes, and searches after unexpected reports
        "terminals": [
            (item["brand"], item["model"], item["base_url"], item["identity"]["conflict"]) for item in terminals
        ],
        "without an address": [item for item in terminals if item["serial"] == OFFLINE],
        # two clocks that are read one after the other can differ by a millisecond
        "clock": (clock["sure"], witness | {"ahead_seconds": round(witness["ahead_seconds"] or 0)}),
    }


@pytest.mark.quick(2)
@pytest.mark.parametrize("end", ENDS)
async def test_a_callback_of_an_ended_payment_changes_no_other_data(own: Shop, end: str) -> None:
    posd = own.daemon
    running = await own.started()
    identity, serial, callback = await ENDS[end](own)
    before = await beside(posd, identity)
    answers = [await deliver(callback, content, posd.ca) for content in late(identity, serial)]
    assert answers.count(200) > 2
    after = await beside(posd, identity)
    assert after == before

    for _ in range(2):
        own.terminal.start = acknowledging(serial)
        fresh = str(uuid4())
        reply = await posd.call("PUT", f"/transactions/{fresh}", {"terminal": serial, "amount": AMOUNT})
        assert reply.status == 201, reply.body
        ending = body(fresh, "DECLINED", serial=serial)
        assert await deliver(own.terminal.requests[-1].callback, ending, posd.ca) == 200
        assert await running.event("CARD_PRESENTED") == 200
        await posd.restart()
    assert (await running.get())["status"] == "CARD_PRESENTED"


async def test_a_callback_of_an_open_payment_updates_its_terminal(own: Shop) -> None:
    posd, payment = own.daemon, await own.started()
    terminal = {"serial_number": payment.serial, **STRANGE}
    assert await payment.event("CARD_PRESENTED", terminal=terminal) == 200
    known = (await posd.call("GET", f"/terminals/{payment.serial}")).json
    assert (known["brand"], known["model"]) == ("Strange", "Strange")
    assert await payment.event("APPROVAL", terminal={"serial_number": OFFLINE}) == 200
    known = (await posd.call("GET", f"/terminals/{payment.serial}")).json
    assert known["identity"]["conflict"]


async def test_an_address_becomes_known_only_by_callbacks_of_open_payments(own: Shop) -> None:
    posd, over, running = own.daemon, await own.started(), await own.started()
    await over.end("DECLINED")
    context = ssl.create_default_context(cafile=str(posd.ca))

    async def opened(source: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        options: Any = {"ssl": context, "server_hostname": "127.0.0.1", "local_addr": (source, 0)}
        return await asyncio.open_connection("127.0.0.1", posd.port, **options)

    for source, payment in (("127.0.0.9", over), ("127.0.0.10", running)):
        reader, writer = await opened(source)
        content = body(payment.identity, "CARD_PRESENTED", serial=payment.serial)
        writer.write(post(payment.requests[0].callback, content))
        assert status_of(await reader.read()) == 200
        writer.close()
        tried = await asyncio.gather(*(opened(source) for _ in range(2 * PLACES_OF_STRANGER)), return_exceptions=True)
        places = [item[1] for item in tried if isinstance(item, tuple)]
        assert (len(places) == len(tried)) is (payment is running)
        for writer in places:
            writer.transport.abort()
