"""Scenarios of the matrix in one table, with the behaviour of the terminal, the wires and people. After a crash at any
point the end must agree with the terminal. `ends`: possible ends without a crash.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx2

from posd.records.callback_urls import make_key
from posd.storage import backup, connection
from tests.crash.printing import WEBHOOKS, creates, prints
from tests.crash.relay import Exchange
from tests.crash.world import Payment, World
from tests.rig.shop import AMOUNT
from tests.store.filled import MORNING, filling, name
from tests.store.printed import print_out

Plot = Callable[[World], Awaitable[None]]

OPEN = "open"


async def pays(world: World) -> None:
    """Start a payment as the till, and wait for the outcome."""
    await world.pay(world.payment)


@asynccontextmanager
async def during(world: World, kind: str, **fields: Any) -> AsyncIterator["asyncio.Task[Any]"]:
    """Pay as the till, and run the block after this line in the terminal's ledger. Yield the till's task."""
    async with asyncio.TaskGroup() as group:
        paying = group.create_task(world.pay(world.payment))
        await world.at_terminal(world.payment, kind, **fields)
        yield paying


def aborts(kind: str, **fields: str) -> Plot:
    """Return the actions of a till that pays, and aborts after this line in the terminal's ledger."""

    async def plot(world: World) -> None:
        async with during(world, kind, **fields):
            reply = await world.call("POST", f"/transactions/{world.payment.identity}/abort")
            code = reply.json.get("code")
            too_late = code in ("past_point_of_no_return", "already_final", "nothing_running")
            assert reply.status == 202 or too_late, f"posd replied {reply.status} to the abort: {reply.json}"

    return plot


async def aborts_too_late(world: World) -> None:
    """Abort after posd has received the event about the request to the acquirer. Check that posd sends no abort."""
    async with during(world, "attempt", status="APPROVAL_REQUESTED", retry_in_seconds=None):
        started = world.started(world.payment)
        reply = await world.call("POST", f"/transactions/{world.payment.identity}/abort")
        expected = ("past_point_of_no_return", "already_final") if started else ("nothing_running",)
        assert reply.json.get("code") in expected, f"posd replied {reply.status} to the abort: {reply.json}"
        if started:
            assert not [item for item in world.wire.exchanges if item.path.endswith("/abort")], "posd sent an abort"


async def reconciles(world: World) -> None:
    """Request a search while the terminal waits for the acquirer, and again after the end."""
    path = f"/transactions/{world.payment.identity}/reconcile"
    async with during(world, "event", status="APPROVAL_REQUESTED"):
        await world.ok("POST", path)
    await world.ok("POST", path)


async def is_silent(world: World) -> None:
    """Block all callbacks until a search has found the outcome."""
    await world.pay(world.payment)
    world.opened.set()


async def two_tills(world: World) -> None:
    """Use the same terminal from another till. posd must refuse until the first payment has ended, and accept
    afterwards.
    """
    first, second = world.payment, world.another("approve-contactless")
    async with during(world, "event", status="TERMINAL_ACKNOWLEDGED") as paying:
        while not second.answered.is_set():
            ended = paying.done()
            reply = await world.put(second)
            if reply.status == 409:
                assert reply.json["code"] == "terminal_busy", reply.json
                if ended:
                    assert paying.result() is None, "the terminal is still busy after the end of the payment"
                    return
                await world.call("GET", f"/transactions/{first.identity}/outcome?timeout=0.1")
    await world.outcome(second)


async def one_basket(world: World) -> None:
    """Charge the same sale from another till, during and after the payment. posd must refuse both calls."""
    world.payment.sale = "basket"
    second = world.another("approve-contactless", "basket")
    async with during(world, "event", status="TERMINAL_ACKNOWLEDGED") as paying:
        for _ in range(2):
            reply = await world.put(second)
            assert reply.json.get("code") == "sale_conflict", f"the basket was not refused: {reply.json}"
            await paying


async def _decide(world: World, payment: Payment, call: str, **more: str) -> None:
    body = {"operator": "ana", "note": "looked at the terminal", **more}
    reply = await world.call("POST", f"/transactions/{payment.identity}/{call}", body, admin=True)
    # A repeated call gets a problem if the first call arrived and only its response was lost.
    heard = reply.json.get("code") in ("already_final", "not_found")
    assert reply.status == 200 or heard, f"posd replied {reply.status} to {call}: {reply.json}"


async def is_released(world: World) -> None:
    """Release the terminal of a payment in doubt. The next customer pays on this terminal."""
    await world.start(world.payment)
    await _decide(world, world.payment, "release")
    assert (await world.get(world.payment))["released"], "posd shows the released payment as not released"
    await world.pay(world.another("approve-contactless"))
    await world.outcome(world.payment)


async def is_resolved(world: World) -> None:
    """Resolve a payment in doubt as not charged, after the operator's check."""
    await world.start(world.payment)
    await _decide(world, world.payment, "resolve", result="not_started")
    said = (await world.outcome(world.payment))["result"]
    assert said == "not_started", f"the operator recorded not_started, and posd shows {said}"


async def is_resolved_wrongly(world: World) -> None:
    """Resolve a payment as not charged. Then the terminal reports, and the operator acknowledges."""
    await is_resolved(world)
    world.opened.set()
    await world.quiet()
    if world.started(world.payment):
        codes = _codes(await world.get(world.payment))
        assert codes == {"outcome_corrected"}, f"the attentions after a corrected decision are {codes}"
        await _decide(world, world.payment, "acknowledge", code="outcome_corrected")
    codes = _codes(await world.get(world.payment))
    assert not codes, f"attentions are left after the acknowledgement: {codes}"


def _codes(document: Mapping[str, list[dict[str, str]]]) -> set[str]:
    return {item["code"] for item in document["attention"]}


async def paid_before(world: World) -> None:
    """Make an earlier payment. With this payment posd can prove that this terminal's search works."""
    async with world.one_life():
        await world.pay(world.another("approve-contactless"))
        await world.quiet()


async def _back_up(world: World, **where: Any) -> Path:
    """Make a backup, by default to one file."""
    wanted = where or {"path": str(world.daemon.directory / "backup.db")}
    return Path((await world.ok("POST", "/backup", wanted, admin=True))["path"])


async def is_backed_up(world: World) -> None:
    """Start a payment, and copy the database while the card is present."""
    async with during(world, "event", status="CARD_PRESENTED"):
        file = await _back_up(world)
    with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True)) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)], "the backup is damaged"
        known = db.execute("SELECT client_transaction_id FROM transactions").fetchall()
        assert (world.payment.identity,) in known, f"the backup lacks the payment that was recorded before: {known}"


async def is_backed_up_again(world: World) -> None:
    """Make two backups while the card is present, in a directory that keeps one backup. The older backup must be
    removed.
    """
    directory = world.daemon.directory / "backups"
    async with during(world, "event", status="CARD_PRESENTED"):
        old = await _back_up(world, into=str(directory), keep=1)
        old.rename(old.with_name("posd-20200101T000000Z.db.gz"))
        newest = await _back_up(world, into=str(directory), keep=1)
    kept = sorted(path.name for path in directory.iterdir())
    assert kept == [newest.name], f"the directory has {kept} instead of {newest.name} alone"
    with backup.unpacked(newest) as plain:
        count = connection.check_file(plain)
    assert count == 1, f"the backup has {count} payments instead of 1"


OLD = 12


async def old_payments_before(world: World) -> None:
    """Insert payments of two years ago."""
    world.daemon.database.parent.mkdir(mode=0o700, exist_ok=True)
    make_key(world.daemon.database.with_name("callback.key"))
    with filling(world.daemon.database, MORNING.replace(year=2024)) as filled:
        filled.db.execute("BEGIN")
        for number in range(OLD):
            filled.pay(number, metadata=b'{"note": "%s"}' % (b"x" * 4000))
        print_out(filled, "old-1")
        filled.db.execute("COMMIT")


async def is_pruned(world: World) -> None:
    """Remove old records while the till pays. Check that posd refuses a new start under each removed id."""
    async with asyncio.TaskGroup() as group:
        group.create_task(world.pay(world.payment))
        await world.ok("POST", "/prune", {"older_than_days": 300}, admin=True)
    for number in range(OLD):
        call = await world.call("PUT", f"/transactions/{name(number)}", {"amount": AMOUNT})
        assert (call.status, call.json["result"]) == (410, "approved"), call.json
    listed = (await world.call("GET", "/feed?limit=500")).json["changes"]
    assert {line["id"] for line in listed} <= {world.payment.identity}, listed


async def backed_up_before(world: World) -> None:
    """Make an earlier payment, and a backup that lacks the payment of the scenario."""
    async with world.one_life():
        await world.pay(world.another("approve-contactless"))
        await world.quiet()
        await _back_up(world)


async def is_restored(world: World) -> None:
    """Restore the backup while the payment runs. Then repeat the till's call with the same id."""
    await world.start(world.payment)
    await world.offline("restore", str(world.daemon.directory / "backup.db"), "--yes")
    world.opened.set()
    await world.pay(world.payment)


async def is_occupied(world: World) -> None:
    """Run an endless payment of another system on the terminal."""
    other = {"client_transaction_id": "00000000-0000-4000-8000-000000000000", "amount": AMOUNT}
    async with httpx2.AsyncClient(trust_env=False) as client:
        url = f"{world.terminal.base_url}/terminal/v1/async/charge"
        reply = await client.post(url, json=other | {"metadata": {"scenario": "wait-for-abort"}})
        assert reply.status_code == 200


# The wires. Each effect applies to one exchange.

#: Effect on one exchange. The effect returns the reply to the caller, or None without a reply.
Wire = Callable[[World, Exchange], Awaitable[bytes | None]]
#: Condition on an exchange.
Which = Callable[[World, Exchange], bool]

GONE = b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
REFUSED = b"HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}"


#: Reply that the server gave.
GIVEN = b""


def effect(reply: bytes | None = GIVEN, *, forward: bool = True, after: str = "", **fields: Any) -> Wire:
    """Return a wire that passes the exchange on, and delivers a reply, or none. With `after` the reply is delivered
    after this line in the terminal's ledger.
    """

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        found = await exchange.forward() if forward else None
        if after:
            await world.terminal.ledger.wait_for(after, client_transaction_id=world.payment.identity, **fields)
        return found if reply == GIVEN else reply

    return wire


#: Wires that pass the exchange on, that lose the reply or the request, and that let another device reply.
PASSED, REPLY_LOST, LOST, ASTRAY = effect(), effect(None), effect(None, forward=False), effect(GONE, forward=False)


def where(applies: Which, what: Wire, otherwise: Wire = PASSED) -> Wire:
    """Return a wire with this effect on some exchanges, and another effect on all others."""

    async def wire(world: World, exchange: Exchange) -> bytes | None:
        return await (what if applies(world, exchange) else otherwise)(world, exchange)

    return wire


def start_is(what: Wire, otherwise: Wire = PASSED) -> Wire:
    """Return a wire with this effect on the start of the scenario's payment."""
    return where(_is_start, what, otherwise)


def events_are(what: Wire) -> Wire:
    """Return a wire with this effect on the callbacks of the scenario's payment."""
    return where(lambda world, item: bool(item.json["client_transaction_id"] == world.payment.identity), what)


def _is_start(world: World, exchange: Exchange) -> bool:
    if exchange.method != "POST" or not exchange.path.endswith("/charge"):
        return False
    return bool(exchange.json["client_transaction_id"] == world.payment.identity)


def _closed(world: World, _exchange: Exchange) -> bool:
    return not world.opened.is_set()


def _repeated(world: World, exchange: Exchange) -> bool:
    return any(item.body == exchange.body and item.status == 200 for item in world.callbacks.exchanges)


#: Lose the first response to each event, so that the terminal sends the event again.
answer_lost = where(_repeated, PASSED, REPLY_LOST)
#: Lose the card event permanently.
card_lost = where(lambda _world, exchange: bool(exchange.json["status"] == "CARD_PRESENTED"), ASTRAY)
#: Block callbacks until the scenario opens the wire. The terminal retries.
blocked = where(_closed, LOST)
#: Lose the reply to the start, and block searches until the scenario opens them.
start_lost_search_closed = where(
    lambda world, exchange: exchange.path.endswith("/transaction_search_online") and _closed(world, exchange),
    ASTRAY,
    start_is(REPLY_LOST),
)
#: Act as the terminal: accept a print job, and lose the reply.
creation_lost = where(lambda _world, exchange: creates(exchange), REPLY_LOST)
#: Let another device reply to the print webhooks, so that posd never gets a webhook.
webhooks_astray = where(lambda _world, exchange: exchange.path.startswith(WEBHOOKS), ASTRAY)


@dataclass(frozen=True)
class Scenario:
    """One column of the matrix. `ends`: possible results without a kill. A scenario of printing starts no payment. The
    plot of such a scenario creates the print jobs.
    """

    ends: tuple[str, ...]
    payment: str = "approve-contactless"
    plot: Plot = pays
    wire: Wire = PASSED
    callbacks: Wire = PASSED
    before: Plot | None = None
    line: Literal["good", "cut", "refused"] = "good"
    wait_seconds: float = 20.0
    unruly: bool = False
    #: Whether the payment of another system runs on the terminal.
    occupied: bool = False
    #: Whether all conditions of the proof hold. In this case posd can prove that the terminal never got the payment.
    proves: bool = False
    #: Whether an operator resolves the payment. A report of the terminal may correct the decision.
    word: bool = False


APPROVED, CANCELED, NOT_STARTED = ("approved",), ("canceled",), ("not_started",)
CHIP, WAIT = "approve-chip-pin", "wait-for-abort"
#: End -> scenarios of the simulated terminal without a fault.
_ENDS = {
    "approved": ("approve-contactless", CHIP, "approve-third-presentation"),
    "declined": ("decline",),
    "rejected": ("reject-before-card", "reject-after-card", WAIT),
    "canceled": ("cancel-by-cardholder",),
}

SCENARIOS: Mapping[str, Scenario] = {
    **{name: Scenario((end,), name) for end, names in _ENDS.items() for name in names},
    # The start: its request or its reply is lost or late, or the terminal refuses it.
    "reply-lost": Scenario(APPROVED, wire=start_is(REPLY_LOST)),
    "request-lost": Scenario((OPEN,), wire=start_is(LOST)),
    "line-cut": Scenario(NOT_STARTED, line="cut"),
    "unreachable": Scenario(NOT_STARTED, line="refused"),
    "reply-late": Scenario(APPROVED, wire=start_is(effect(after="attempt", status="APPROVAL"))),
    "refused-after-event": Scenario(
        APPROVED, CHIP, wire=start_is(effect(REFUSED, after="attempt", retry_in_seconds=None))
    ),
    "refused-409": Scenario(NOT_STARTED, before=is_occupied, occupied=True, wait_seconds=0),
    "refused-422": Scenario(NOT_STARTED, "no-such-scenario"),
    # The events: they are repeated, disordered, lost or late.
    "answers-lost": Scenario(APPROVED, "approve-third-presentation", callbacks=events_are(answer_lost)),
    "unruly": Scenario(APPROVED, CHIP, unruly=True),
    "event-lost": Scenario(APPROVED, CHIP, callbacks=events_are(card_lost)),
    "found-by-search": Scenario(APPROVED, wire=start_is(REPLY_LOST), callbacks=events_are(ASTRAY)),
    "silence": Scenario(("declined",), "decline", plot=is_silent, callbacks=events_are(blocked)),
    "reconciled": Scenario(APPROVED, plot=reconciles),
    # The till aborts: before the reply, while the terminal waits for the card, with the card, after the acquirer.
    "abort-starting": Scenario(
        CANCELED, WAIT, plot=aborts("start"), wire=start_is(effect(after="abort")), wait_seconds=0
    ),
    "abort-waiting": Scenario(CANCELED, WAIT, plot=aborts("event", status="TERMINAL_ACKNOWLEDGED"), wait_seconds=0),
    "abort-late": Scenario(("canceled", "approved"), CHIP, plot=aborts("event", status="CARD_PRESENTED")),
    "abort-too-late": Scenario(APPROVED, CHIP, plot=aborts_too_late),
    # The database: backups, retention, a restore while a payment runs.
    "backed-up": Scenario(APPROVED, CHIP, plot=is_backed_up),
    "backed-up-again": Scenario(APPROVED, plot=is_backed_up_again),
    "pruned": Scenario(APPROVED, plot=is_pruned, before=old_payments_before),
    "restored": Scenario(APPROVED, plot=is_restored, callbacks=events_are(blocked), before=backed_up_before),
    # Two tills, and people.
    "two-tills": Scenario(APPROVED, CHIP, plot=two_tills),
    "one-basket": Scenario(APPROVED, plot=one_basket),
    "released": Scenario((OPEN,), plot=is_released, wire=start_is(LOST)),
    "resolved": Scenario(NOT_STARTED, plot=is_resolved, wire=start_is(LOST), word=True),
    "resolved-wrongly": Scenario(
        APPROVED, plot=is_resolved_wrongly, wire=start_lost_search_closed, callbacks=events_are(blocked), word=True
    ),
    # Receipts.
    "printed": Scenario(("COMPLETED",), plot=prints(1)),
    "print-failed": Scenario(("FAILED",), plot=prints(1, "fails")),
    "print-refused": Scenario(("refusal",), plot=prints(1, "refuses")),
    "print-reply-lost": Scenario(("COMPLETED",), plot=prints(1), wire=creation_lost),
    "print-untold": Scenario(("COMPLETED",), plot=prints(1), callbacks=webhooks_astray),
    "print-line": Scenario(("COMPLETED",), plot=prints(4)),
    # posd proves that the payment never started, and the probe cancels a running payment.
    "proved": Scenario(NOT_STARTED, wire=start_is(LOST), before=paid_before, proves=True),
    "probe-hits": Scenario(
        CANCELED,
        WAIT,
        wire=start_is(REPLY_LOST),
        callbacks=events_are(ASTRAY),
        before=paid_before,
        wait_seconds=0,
        proves=True,
    ),
}
