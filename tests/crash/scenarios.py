"""Scenarios of the matrix in one table, with the behaviour of the terminal, the wires and people. After a crash at any
point the end must agree with the terminal. `ends`: possible ends without a crash.
"""

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx2

from posd.records.callback_urls import make_key
from posd.storage import backup, connection
from tests.crash import wires
from tests.crash.printing import prints
from tests.crash.wires import Wire, events_are, start_is
from tests.crash.world import Payment, World
from tests.store.filled import MORNING, filling, name
from tests.store.printed import print_out
from tests.support.shop import AMOUNT

Plot = Callable[[World], Awaitable[None]]

OPEN = "open"


async def pays(world: World) -> None:
    """Start a payment as the till, and wait for the outcome."""
    await world.pay(world.payment)


def aborts(kind: str, **fields: str) -> Plot:
    """Return the actions of a till that pays, and aborts after this line in the terminal's ledger."""

    async def plot(world: World) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(world.pay(world.payment))
            await world.at_terminal(world.payment, kind, **fields)
            reply = await world.call("POST", f"/transactions/{world.payment.identity}/abort")
            code = reply.json.get("code")
            too_late = code in ("past_point_of_no_return", "already_final", "nothing_running")
            assert reply.status == 202 or too_late, f"posd replied {reply.status} to the abort: {reply.json}"

    return plot


async def aborts_too_late(world: World) -> None:
    """Abort after posd has received the event about the request to the acquirer. Check that posd sends no abort."""
    async with asyncio.TaskGroup() as group:
        group.create_task(world.pay(world.payment))
        known = {"status": "APPROVAL_REQUESTED", "retry_in_seconds": None}
        started = await world.at_terminal(world.payment, "attempt", **known)
        reply = await world.call("POST", f"/transactions/{world.payment.identity}/abort")
        expected = ("past_point_of_no_return", "already_final") if started else ("nothing_running",)
        assert reply.json.get("code") in expected, f"posd replied {reply.status} to the abort: {reply.json}"
        if started:
            assert not [item for item in world.wire.exchanges if item.path.endswith("/abort")], "posd sent an abort"


async def reconciles(world: World) -> None:
    """Request a search while the terminal waits for the acquirer, and again after the end."""
    async with asyncio.TaskGroup() as group:
        group.create_task(world.pay(world.payment))
        await world.at_terminal(world.payment, "event", status="APPROVAL_REQUESTED")
        await _reconcile(world)
    await _reconcile(world)


async def _reconcile(world: World) -> None:
    reply = await world.call("POST", f"/transactions/{world.payment.identity}/reconcile")
    assert reply.status == 200, f"posd replied {reply.status} to reconcile: {reply.json}"


async def is_silent(world: World) -> None:
    """Block all callbacks until a search has found the outcome."""
    await world.pay(world.payment)
    world.opened.set()


async def two_tills(world: World) -> None:
    """Use the same terminal from another till. posd must refuse until the first payment has ended, and accept
    afterwards.
    """
    first, second = world.payment, world.another("approve-contactless")
    async with asyncio.TaskGroup() as group:
        paying = group.create_task(world.pay(first))
        await world.at_terminal(first, "event", status="TERMINAL_ACKNOWLEDGED")
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
    async with asyncio.TaskGroup() as group:
        paying = group.create_task(world.pay(world.payment))
        await world.at_terminal(world.payment, "event", status="TERMINAL_ACKNOWLEDGED")
        for _ in range(2):
            reply = await world.put(second)
            assert reply.json.get("code") == "sale_conflict", (
                f"posd accepted the basket again: {reply.status} {reply.json}"
            )
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
    assert (await world.get(world.payment))["released"], (
        "posd accepted the release, and shows the payment as not released"
    )
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


async def _back_up(world: World) -> Path:
    file = world.daemon.directory / "backup.db"
    reply = await world.call("POST", "/backup", {"path": str(file)}, admin=True)
    assert reply.status == 200, f"posd replied {reply.status} to the backup: {reply.json}"
    return file


async def is_backed_up(world: World) -> None:
    """Start a payment, and copy the database while the card is present."""
    async with asyncio.TaskGroup() as group:
        group.create_task(world.pay(world.payment))
        await world.at_terminal(world.payment, "event", status="CARD_PRESENTED")
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
    async with asyncio.TaskGroup() as group:
        group.create_task(world.pay(world.payment))
        await world.at_terminal(world.payment, "event", status="CARD_PRESENTED")
        _make_old(await _back_up_into(world, directory))
        newest = await _back_up_into(world, directory)
    kept = sorted(path.name for path in directory.iterdir())
    assert kept == [newest.name], f"the directory has {kept} instead of {newest.name} alone"
    with backup.unpacked(newest) as plain:
        count = connection.check_file(plain)
    assert count == 1, f"the backup has {count} payments instead of 1"


async def _back_up_into(world: World, directory: Path) -> Path:
    reply = await world.call("POST", "/backup", {"into": str(directory), "keep": 1}, admin=True)
    assert reply.status == 200, f"posd replied {reply.status} to the backup: {reply.json}"
    return Path(reply.json["path"])


def _make_old(path: Path) -> None:
    path.rename(path.with_name("posd-20200101T000000Z.db.gz"))


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
        reply = await world.call("POST", "/prune", {"older_than_days": 300}, admin=True)
    assert reply.status == 200, f"posd replied {reply.status} to prune: {reply.json}"
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


@dataclass(frozen=True)
class Scenario:
    """One column of the matrix. `ends`: possible results without a kill. A scenario of printing starts no payment. The
    plot of such a scenario creates the print jobs.
    """

    tells: str
    ends: tuple[str, ...]
    payment: str = "approve-contactless"
    plot: Plot = pays
    wire: Wire = wires.to_terminal
    callbacks: Wire = wires.to_daemon
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


#: Scenario of the simulated terminal -> end.
_ENDS = {
    "approve-contactless": "approved",
    "approve-chip-pin": "approved",
    "approve-third-presentation": "approved",
    "decline": "declined",
    "reject-before-card": "rejected",
    "reject-after-card": "rejected",
    "cancel-by-cardholder": "canceled",
    "wait-for-abort": "rejected",
}

SCENARIOS: Mapping[str, Scenario] = {
    **{name: Scenario(f"a payment without a fault: {name}", (end,), payment=name) for name, end in _ENDS.items()},
    "reply-lost": Scenario("the start's reply is lost", ("approved",), wire=start_is(wires.reply_lost)),
    "request-lost": Scenario("the start never reaches the terminal", (OPEN,), wire=start_is(wires.swallowed)),
    "line-cut": Scenario("connections are cut before the request", ("not_started",), line="cut"),
    "unreachable": Scenario("the terminal cannot be reached", ("not_started",), line="refused"),
    "reply-late": Scenario("the reply arrives after the final", ("approved",), wire=start_is(wires.reply_late)),
    "refused-after-event": Scenario(
        "an event arrives before a refusal", ("approved",), "approve-chip-pin", wire=start_is(wires.refused_after_event)
    ),
    "refused-409": Scenario(
        "the terminal is busy", ("not_started",), before=is_occupied, occupied=True, wait_seconds=0
    ),
    "refused-422": Scenario("the terminal refuses the request as invalid", ("not_started",), "no-such-scenario"),
    "answers-lost": Scenario(
        "each event is repeated", ("approved",), "approve-third-presentation", callbacks=events_are(wires.answer_lost)
    ),
    "unruly": Scenario("events arrive out of order and twice", ("approved",), "approve-chip-pin", unruly=True),
    "event-lost": Scenario(
        "one event is lost for good", ("approved",), "approve-chip-pin", callbacks=events_are(wires.card_lost)
    ),
    "found-by-search": Scenario(
        "the reply and the events are lost",
        ("approved",),
        wire=start_is(wires.reply_lost),
        callbacks=events_are(wires.astray),
    ),
    "silence": Scenario(
        "no callback arrives for a while", ("declined",), "decline", plot=is_silent, callbacks=events_are(wires.blocked)
    ),
    "reconciled": Scenario("the till requests a search", ("approved",), plot=reconciles),
    "abort-starting": Scenario(
        "the till aborts before the reply arrives",
        ("canceled",),
        "wait-for-abort",
        plot=aborts("start"),
        wire=start_is(wires.reply_after_abort),
        wait_seconds=0,
    ),
    "abort-waiting": Scenario(
        "the till aborts while the terminal waits for the card",
        ("canceled",),
        "wait-for-abort",
        plot=aborts("event", status="TERMINAL_ACKNOWLEDGED"),
        wait_seconds=0,
    ),
    "abort-late": Scenario(
        "the till aborts when the card is presented",
        ("canceled", "approved"),
        "approve-chip-pin",
        plot=aborts("event", status="CARD_PRESENTED"),
    ),
    "abort-too-late": Scenario(
        "the till aborts after the acquirer was asked", ("approved",), "approve-chip-pin", plot=aborts_too_late
    ),
    "backed-up": Scenario(
        "a backup is made while a payment runs", ("approved",), "approve-chip-pin", plot=is_backed_up
    ),
    "backed-up-again": Scenario("a second backup replaces the first", ("approved",), plot=is_backed_up_again),
    "pruned": Scenario("retention removes old records", ("approved",), plot=is_pruned, before=old_payments_before),
    "restored": Scenario(
        "a backup is restored while a payment runs",
        ("approved",),
        plot=is_restored,
        callbacks=events_are(wires.blocked),
        before=backed_up_before,
    ),
    "two-tills": Scenario("two tills use one terminal", ("approved",), "approve-chip-pin", plot=two_tills),
    "one-basket": Scenario("two tills charge one basket", ("approved",), plot=one_basket),
    "released": Scenario("a person releases the terminal", (OPEN,), plot=is_released, wire=start_is(wires.swallowed)),
    "resolved": Scenario(
        "a person resolves a doubt", ("not_started",), plot=is_resolved, wire=start_is(wires.swallowed), word=True
    ),
    "resolved-wrongly": Scenario(
        "the terminal corrects a person's decision",
        ("approved",),
        plot=is_resolved_wrongly,
        wire=wires.start_lost_search_closed,
        callbacks=events_are(wires.blocked),
        word=True,
    ),
    "printed": Scenario("a receipt is printed", ("COMPLETED",), plot=prints(1)),
    "print-failed": Scenario("the paper is jammed", ("FAILED",), plot=prints(1, "fails")),
    "print-refused": Scenario("the terminal refuses the document", ("refusal",), plot=prints(1, "refuses")),
    "print-reply-lost": Scenario(
        "the reply to a print job is lost", ("COMPLETED",), plot=prints(1), wire=wires.creation_lost
    ),
    "print-untold": Scenario(
        "the webhook of a print job is lost", ("COMPLETED",), plot=prints(1), callbacks=wires.webhooks_astray
    ),
    "print-line": Scenario("several print jobs wait for the terminal", ("COMPLETED",), plot=prints(4)),
    "proved": Scenario(
        "posd proves that the payment never started",
        ("not_started",),
        wire=start_is(wires.swallowed),
        before=paid_before,
        proves=True,
    ),
    "probe-hits": Scenario(
        "the probe cancels a running payment",
        ("canceled",),
        "wait-for-abort",
        wire=start_is(wires.reply_lost),
        callbacks=events_are(wires.astray),
        before=paid_before,
        wait_seconds=0,
        proves=True,
    ),
}
