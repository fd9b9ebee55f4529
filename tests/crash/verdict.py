"""Checks at the end, after any kill. Each fault is a sentence. The terminal's own ledger has the true events. The
relays have requests and replies.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from posd.upkeep.verify import verify
from tests.crash import printing
from tests.crash.world import SERIAL, Payment, World
from tests.rig.daemon import FAULTS
from tests.rig.judge import Case, lost_events, payment_faults, row_faults
from tests.rig.webhooks import disk

#: The path of the payments' callbacks.
WEBHOOKS = "/webhooks/transactions/"
#: The token in a callback URL. No response may contain a token.
_TOKEN = re.compile(rb"(webhooks/(?:transactions|print-jobs)/[^/\"]+/)[\w-]+")
#: Attentions that may stay open after lost callbacks, or if the terminal never had the payment.
ATTENTIONS = {"in_doubt", "gap", "stalled", "no_callback", "released"}


async def online_faults(world: World) -> list[str]:
    """Return the faults found by calls to the running daemon."""
    faults, documents = [], []
    for payment in world.payments:
        reply = await world.call("GET", f"/transactions/{payment.identity}")
        if (reply.status == 200) != payment.answered.is_set() or reply.status not in (200, 404):
            faults.append(f"{payment.identity}: posd replies {reply.status} to a GET of the payment")
        case = _case(world, payment, reply.json if reply.status == 200 else None)
        found = [*payment_faults(case), *_faults(world, payment, case)]
        if case.shown is not None:
            documents.append(case.shown)
            listed = (await world.ok("GET", f"/transactions/{payment.identity}/events"))["events"]
            if [item["event"] for item in listed] != (stored := _stored(world, payment)):
                found.append(f"the listed events differ from the database: {listed}, {stored}")
        faults += [f"{payment.identity}: {fault}" for fault in found]
    holding = [item["client_transaction_id"] for item in documents if item["phase"] != "final" and not item["released"]]
    terminal = await world.ok("GET", f"/terminals/{SERIAL}")
    if [terminal["transaction"]] != (holding or [None]):
        faults.append(f"{terminal['transaction']} holds the terminal, and these payments are open on it: {holding}")
    faults += _feed_faults(documents, (await world.ok("GET", "/feed?limit=500"))["changes"])
    report = await world.ok("POST", "/reprocess", admin=True)
    differing = any(report.get(name, True) for name in ("differing", "applied", "quarantined", "skipped"))
    if differing or any(report["printing"].get(name, True) for name in ("differing", "applied")):
        faults.append(f"reprocessing finds differences: {report}")
    return faults + await printing.online_faults(world)


def offline_faults(world: World) -> list[str]:
    """Return the faults on the disk and in the logs, after the daemon has stopped."""
    faults = [f"log: {line}" for line in world.log if line["event"] in FAULTS]
    with disk(world.daemon) as db:
        faults += [*row_faults(db), *lost_events(db, world.terminal.ledger), *printing.offline_faults(world, db)]
        stored = Counter(row[0] for row in db.execute("SELECT body FROM events"))
    faults += [f"`verify` finds {finding}" for finding in verify(world.daemon.database, lambda *_: None).findings]
    faults += printing.stored_faults(world, WEBHOOKS, "event", stored)
    refused = {item.status for item in world.callbacks.exchanges} - {None, 200, 503}
    return faults + [f"posd replied {status} to an event, so the terminal does not send it again" for status in refused]


def _case(world: World, payment: Payment, shown: Any) -> Case:
    """Return the records of a payment. A start has certainly reached the terminal if the relay has read it."""
    ledger, identity = world.terminal.ledger, payment.identity
    starts = (item for item in world.wire.exchanges if item.path.endswith("/charge"))
    relayed = sum(item.json["client_transaction_id"] == identity for item in starts)
    return Case(
        identity,
        starts=max(relayed, sum(identity in body for body in world.terminal.terminal.requests)),
        ran=world.started(payment),
        finals=ledger.of("final", client_transaction_id=identity),
        shown=shown,
        told=payment.told,
        refused=None if payment.answered.is_set() else "any code",
        resolved="not_started" if world.scenario.word and payment is world.payment else None,
    )


def _faults(world: World, payment: Payment, case: Case) -> Iterator[str]:
    """Yield the faults that only a scenario with one terminal can show."""
    ledger, codes = world.terminal.ledger, case.attention
    if ledger.of("start", client_transaction_id=case.id, http_status=409) and not world.scenario.occupied:
        yield "posd sent the payment to a busy terminal"
    if case.shown is None:
        return
    final = case.shown["phase"] == "final"
    if case.shown["next_step"] == "new_id_ok" and (case.charges or not final):
        yield f"posd permits a new id, and the payment is {case.shown['phase']}, charges: {case.charges}"
    if world.scenario.proves and not final:
        yield "posd has the full proof, and does not conclude not_started"
    made = ledger.of("event", client_transaction_id=case.id)
    lost = not case.ran or any(ledger.of("dropped", event_id=item["event_id"]) for item in made)
    if codes - (ATTENTIONS if lost else set()):
        yield f"attentions are left after the end: {case.shown['attention']}"


def _stored(world: World, payment: Payment) -> list[Any]:
    """Return the stored events of a payment, without the tokens of callbacks."""
    query = "SELECT body FROM events WHERE client_transaction_id = ? ORDER BY seq"
    with disk(world.daemon) as db:
        bodies = (_TOKEN.sub(rb"\1[redacted]", row[0]) for row in db.execute(query, (payment.identity,)))
        return [json.loads(body, parse_float=Decimal) for body in bodies]


def _feed_faults(documents: list[Any], changes: list[Any]) -> Iterator[str]:
    """Yield differences between transactions and their newest lines of the feed."""
    if [change["seq"] for change in changes] != sorted({change["seq"] for change in changes}):
        yield "the numbers of the feed do not ascend"
    newest = {change["id"]: change for change in changes}
    for document in documents:
        change = newest[document["client_transaction_id"]]
        said = (change["phase"], change["result"], change["status"])
        true = (document["phase"], document["outcome"] and document["outcome"]["result"], document["status"])
        if said != true:
            yield f"{document['client_transaction_id']}: the feed has {said}, the transaction has {true}"
