"""Checks at the end, after any kill. Each fault is a sentence. The terminal's own ledger has the true events. The
relays have requests and replies.
"""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from typing import Any

from posd.upkeep.verify import verify
from tests.crash import printing
from tests.crash.world import SERIAL, Payment, World
from tests.support.daemon import FAULTS
from tests.support.events import RESULTS

#: Evidence that a payment never started: an unsent request, a refusal, both rounds of proof, or an operator's decision.
PROOFS = ({"unsent"}, {"refusal"}, {"abort", "search"}, {"operator"})
#: The path of the payments' callbacks.
WEBHOOKS = "/webhooks/transactions/"
#: The token in a callback URL. No response may contain a token.
_TOKEN = re.compile(rb"(webhooks/(?:transactions|print-jobs)/[^/\"]+/)[\w-]+")
#: Attentions that may stay open after lost callbacks, or if the terminal never had the payment.
ATTENTIONS = {"in_doubt", "gap", "stalled", "no_callback", "released"}


async def online_faults(world: World) -> list[str]:
    """Return the faults found by calls to the running daemon."""
    faults = []
    documents = []
    for payment in world.payments:
        reply = await world.call("GET", f"/transactions/{payment.identity}")
        if payment.answered.is_set() and reply.status == 200:
            documents.append(reply.json)
            listed = await world.call("GET", f"/transactions/{payment.identity}/events")
            faults += _payment_faults(world, payment, reply.json, listed.json["events"])
        elif (reply.status == 404) != (not payment.answered.is_set()):
            faults.append(f"{payment.identity}: posd replies {reply.status} to a GET of the payment")
        elif _received(world, payment):
            faults.append(f"{payment.identity}: posd does not know the payment, and the terminal received its start")
    holding = [item["client_transaction_id"] for item in documents if item["phase"] != "final" and not item["released"]]
    terminal = (await world.call("GET", f"/terminals/{SERIAL}")).json
    if [terminal["transaction"]] != (holding or [None]):
        faults.append(f"{terminal['transaction']} holds the terminal, and these payments are open on it: {holding}")
    faults += _feed_faults(documents, (await world.call("GET", "/feed?limit=500")).json["changes"])
    report = (await world.call("POST", "/reprocess", admin=True)).json
    of_jobs = report["printing"]
    differing = any(report.get(name, True) for name in ("differing", "applied", "quarantined", "skipped"))
    if differing or any(of_jobs.get(name, True) for name in ("differing", "applied")):
        faults.append(f"reprocessing finds differences: {report}")
    return faults + await printing.online_faults(world)


def offline_faults(world: World) -> list[str]:
    """Return the faults on the disk and in the logs, after the daemon has stopped."""
    faults = [f"log: {line}" for line in world.log if line["event"] in FAULTS]
    with closing(sqlite3.connect(f"{world.daemon.database.as_uri()}?mode=ro", uri=True)) as db:
        faults += [f"the integrity check finds {row}" for row in db.execute("PRAGMA integrity_check") if row != ("ok",)]
        faults += [f"a foreign key has no row: {row}" for row in db.execute("PRAGMA foreign_key_check")]
        rule = "SELECT client_transaction_id FROM transactions WHERE (phase = 'final') <> (outcome IS NOT NULL)"
        faults += [f"a transaction is final without an outcome, or the reverse: {row}" for row in db.execute(rule)]
        stored = Counter(row[0] for row in db.execute("SELECT body FROM events"))
        faults += printing.offline_faults(world, db)
    faults += [f"`verify` finds {finding}" for finding in verify(world.daemon.database, lambda *_: None).findings]
    faults += printing.stored_faults(world, WEBHOOKS, "event", stored)
    refused = {item.status for item in world.callbacks.exchanges} - {None, 200, 503}
    faults += [f"posd replied {status} to an event, so the terminal does not send it again" for status in refused]
    known = {json.loads(body)["event_id"] for body in stored}
    heard = (item for item in world.terminal.ledger.of("attempt") if isinstance(item["result"], int))
    told = {item["event_id"] for item in heard if item["result"] // 100 == 2}
    faults += [
        f"the terminal received a 2xx for event {missing}, which is not in the database" for missing in told - known
    ]
    return faults


def _received(world: World, payment: Payment) -> int:
    """Return the number of start requests of a payment that have certainly reached the relay."""
    starts = (item for item in world.wire.exchanges if item.path.endswith("/charge"))
    return sum(1 for item in starts if item.json["client_transaction_id"] == payment.identity)


def _payment_faults(world: World, payment: Payment, document: Any, listed: list[Any]) -> Iterator[str]:
    ledger, identity = world.terminal.ledger, payment.identity
    received = max(_received(world, payment), sum(identity in body for body in world.terminal.terminal.requests))
    finals = ledger.of("final", client_transaction_id=identity)
    if received > 1 or len(finals) > 1:
        yield f"{identity}: the terminal received {received} start requests and made {len(finals)} finals: {finals}"
    busy = ledger.of("start", client_transaction_id=identity, http_status=409)
    if busy and not world.scenario.occupied:
        yield f"{identity}: posd sent the payment to a busy terminal"
    if world.started(payment):
        truth = _ended_faults(world, payment, document, finals)
    else:
        truth = _unstarted_faults(world, document, received)
    yield from (f"{identity}: {fault}" for fault in truth)
    charged = any(final["charged"] for final in finals)
    if document["next_step"] == "new_id_ok" and (charged or document["phase"] != "final"):
        yield f"{identity}: posd permits a new id, and the payment is {document['phase']}, charged: {charged}"
    if (document["phase"] == "final") != (document["outcome"] is not None):
        yield f"{identity}: the phase is {document['phase']} and the outcome is {document['outcome']}"
    with closing(sqlite3.connect(f"{world.daemon.database.as_uri()}?mode=ro", uri=True)) as db:
        query = "SELECT body FROM events WHERE client_transaction_id = ? ORDER BY seq"
        shown = (_TOKEN.sub(rb"\1[redacted]", row[0]) for row in db.execute(query, (identity,)))
        stored = [json.loads(body, parse_float=Decimal) for body in shown]
    if [item["event"] for item in listed] != stored:
        yield f"{identity}: the listed events differ from the database: {listed}, {stored}"


def _ended_faults(world: World, payment: Payment, document: Any, finals: list[Any]) -> Iterator[str]:
    """Yield the faults of a payment that the terminal ran. The terminal's ledger has the true end."""
    final = finals[0]
    outcome, truth = document["outcome"], RESULTS[final["status"]]
    said = outcome and (outcome["result"], outcome["status"], outcome["transaction_reference"])
    if said != (truth, final["status"], final["transaction_reference"]):
        yield f"the terminal has {final}, posd has {said} ({document['phase']})"
    wrong = [item["result"] for item in payment.told if item["result"] != truth]
    if wrong and not (world.scenario.word and payment is world.payment):
        yield f"the till received {wrong}, the terminal has {truth}"
    codes = {item["code"] for item in document["attention"]}
    made = world.terminal.ledger.of("event", client_transaction_id=payment.identity)
    lost = any(world.terminal.ledger.of("dropped", event_id=item["event_id"]) for item in made)
    if codes - (ATTENTIONS if lost else set()):
        yield f"attentions are left after the end: {document['attention']}"


def _unstarted_faults(world: World, document: Any, received: int) -> Iterator[str]:
    """Yield the faults of a payment that the terminal never ran. posd must have a proof, or report doubt."""
    codes, outcome = {item["code"] for item in document["attention"]}, document["outcome"]
    if outcome is None:
        if document["phase"] != "in_doubt" or "in_doubt" not in codes:
            yield f"the payment never started, and posd has {document['phase']} with attention {codes}"
    else:
        kinds = {item["kind"] for item in outcome["evidence"]}
        if outcome["result"] != "not_started" or kinds not in PROOFS:
            yield f"the payment never started, and posd has {outcome['result']} by {kinds}"
        if ("unsent" in kinds and received) or ("operator" in kinds and not world.scenario.word):
            yield f"the evidence is {kinds}, and the terminal received {received} requests"
    if world.scenario.proves and outcome is None:
        yield "posd has the full proof, and does not conclude not_started"
    if codes - ATTENTIONS:
        yield f"the payment has unexpected attentions: {document['attention']}"


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
