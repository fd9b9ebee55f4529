"""Print jobs in the matrix: actions of a till, faults of the wires, and the final checks."""

import json
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

from tests.crash.relay import Exchange

if TYPE_CHECKING:
    from tests.crash.world import Job, World

ACCEPTED = 202
WEBHOOKS = "/webhooks/print-jobs/"


def prints(count: int, scenario: str = "completes") -> "Callable[[World], Awaitable[None]]":
    """Return the actions of a till that prints this many receipts in turn, and then waits for all of them."""

    async def plot(world: "World") -> None:
        world.add_jobs(count, scenario)
        for job in world.jobs:
            await world.start(job)
        for job in world.jobs:
            await world.outcome(job)

    return plot


def hopeless(world: "World", job: "Job", document: Any) -> bool:
    """Return whether nothing can report the end of the job, and posd has polled."""
    asked = world.terminal.ledger.of("print_poll", print_job_id=job.identity)
    return document["phase"] == "in_doubt" and bool(asked) and not _taken(world, job)


def end(world: "World", open_word: str) -> str:
    """Return the end of the first job for the till: the status, or the reason why the terminal did not accept it."""
    told = world.jobs[0].told
    return str(told[-1]["status"] or told[-1]["decided_by"]) if told else open_word


# True state of the terminal.


def busy(world: "World") -> bool:
    """Return whether the printer still has a job to print or report."""
    ledger = world.terminal.ledger
    taken = [entry["print_job_id"] for entry in ledger.of("print", http_status=ACCEPTED)]
    told = [entry["print_job_id"] for entry in ledger.of("print_webhook")]
    return Counter(taken) != Counter(told)


def creates(exchange: Exchange) -> bool:
    """Return whether an exchange with the terminal creates a print job."""
    return exchange.method == "POST" and exchange.path.endswith("/print")


def _taken(world: "World", job: "Job") -> bool:
    return bool(world.terminal.ledger.of("print", print_job_id=job.identity, http_status=ACCEPTED))


def _received(world: "World", job: "Job") -> int:
    """Return how many creations of a job passed the relay or reached the terminal."""
    sent = (item for item in world.wire.exchanges if creates(item))
    relayed = sum(1 for item in sent if item.json["printJobId"] == job.identity)
    return max(relayed, len(world.terminal.ledger.of("print", print_job_id=job.identity)))


# Conditions at the end.


async def online_faults(world: "World") -> list[str]:
    """Return the faults found by calls to the running daemon."""
    faults = []
    changes = (await world.ok("GET", "/feed?limit=500"))["changes"]
    newest = {change["id"]: (change["phase"], change["status"]) for change in changes if change["kind"] == "print_job"}
    for job in world.jobs:
        reply = await world.call("GET", f"/print-jobs/{job.identity}")
        if reply.status == 200:
            faults += [f"{job.identity}: {fault}" for fault in _job_faults(world, job, reply.json)]
            if newest.get(job.identity) != (reply.json["phase"], reply.json["status"]):
                faults.append(f"{job.identity}: the feed has {newest.get(job.identity)}, the job has {reply.json}")
        elif job.answered.is_set() or _received(world, job):
            faults.append(f"{job.identity}: posd replies {reply.status} to a GET of the job")
    return faults


def _job_faults(world: "World", job: "Job", document: Any) -> Iterator[str]:
    received, ledger = _received(world, job), world.terminal.ledger
    on_paper = ledger.of("printed", print_job_id=job.identity)
    if received > 1 or len(on_paper) > 1:
        yield f"the terminal received {received} creations and printed {len(on_paper)} times"
    codes = {item["code"] for item in document["attention"]}
    said = (document["phase"], document["status"], document["decided_by"])
    if _taken(world, job):
        if said[:2] != ("final", on_paper[0]["status"]) or said[2] not in ("webhook", "poll"):
            yield f"the terminal has {on_paper[0]}, posd has {said}"
        if codes:
            yield f"attentions are left after the end: {codes}"
    elif document["phase"] == "final":
        refused = bool(ledger.of("print", print_job_id=job.identity))
        if said != ("final", None, "refusal" if refused else "unsent") or (received and not refused):
            yield f"the terminal never accepted the job ({received} creations received), and posd has {said}"
    elif said != ("in_doubt", None, None) or codes != {"in_doubt"}:
        yield f"the terminal never accepted the job, and posd has {said} with attention {codes}"
    wrong = [item for item in job.told if (item["status"], item["decided_by"]) != said[1:]]
    if wrong:
        yield f"the till received {wrong}, and posd has {said}"


def offline_faults(world: "World", db: sqlite3.Connection) -> list[str]:
    """Return the faults of the database. The database must have each acknowledged webhook once, and no other
    webhook.
    """
    stored = Counter(row[0] for row in db.execute("SELECT body FROM print_journal WHERE body IS NOT NULL"))
    faults = stored_faults(world, WEBHOOKS, "print webhook", stored)
    heard = world.terminal.ledger.of("print_webhook", result=200)
    known = {json.loads(body)["printJobId"] for body in stored}
    faults += [
        f"the terminal received a 2xx for {entry}, which is not in the database"
        for entry in heard
        if entry["named"] not in known
    ]
    return faults


def stored_faults(world: "World", path: str, kind: str, stored: Counter[bytes]) -> list[str]:
    """Compare the callbacks below a path with the stored bodies. The database must have each acknowledged body once,
    and no other body.
    """
    came = [item for item in world.callbacks.exchanges if item.path.startswith(path)]
    taken = {item.body for item in came if item.status is not None and item.status // 100 == 2}
    never_sent = stored.keys() - {item.body for item in came}
    twice = [body for body, count in stored.items() if count > 1]
    return [
        *(f"posd acknowledged this {kind}, which is not in the database: {body!r}" for body in taken - stored.keys()),
        *(f"the database has this {kind}, which the terminal never sent: {body!r}" for body in never_sent),
        *(f"the database has this {kind} {stored[body]} times: {body!r}" for body in twice),
    ]
