"""The full proof that a payment was never started, with each of its conditions."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from tests.rig.events import event
from tests.rig.https import connect
from tests.rig.shop import (
    Payment,
    Shop,
    acknowledging,
    answering,
    hanging_up,
    knowing,
    nothing_to_correct,
    open_counters,
)
from tests.rig.tables import there
from tests.rig.terminal import Request, Script, http
from tests.rig.webhooks import attention

pytestmark = pytest.mark.asyncio(loop_scope="module")

#: Seconds between the two rounds of proof. One second is the configured minimum.
SETTLE = 1.0


def settings(*, settle: float = SETTLE, probe: bool = True, search: bool = True, abort: bool = True) -> str:
    """Return the configuration of a daemon that searches soon."""
    return f"""
[reconcile]
first_event_grace_seconds = 0.1
settle_seconds = {settle}
probe_with_abort = {json.dumps(probe)}
[profile.search]
confirmed = {json.dumps(search)}
[profile.abort]
confirmed = {json.dumps(abort)}
"""


#: Name of a daemon -> its configuration. The name says which proof the configuration excludes.
DAEMONS = {
    "every condition holds": settings(),
    "search not confirmed": settings(search=False),
    "abort not confirmed": settings(abort=False),
    "pause not over": settings(settle=3600),
    "posd may send no abort": settings(probe=False),
}


#: Reply of a working search for an unknown id.
NONE = answering(200, b"[]")
NOTHING_RUNNING = answering(409)


def then(*scripts: Script) -> Script:
    """Return a script that runs these scripts in order. The last script is used for all further requests."""
    left = list(scripts)

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(request, writer)

    return script


def in_turn(*scripts: Script) -> Script:
    """Return a script that runs these scripts in turn, without end."""
    turns = cycle(scripts)

    async def script(request: Request, writer: asyncio.StreamWriter) -> None:
        await next(turns)(request, writer)

    return script


async def nothing_happens(_payment: Payment) -> None:
    """Do nothing with the payment."""


@dataclass
class Case:
    """A payment in doubt that lacks one condition of the proof.

    `abort` and `search`: the terminal's replies. By default the terminal runs nothing and does not find the payment.
    `earlier`: whether the terminal has ended an earlier payment. `seen`: whether a search finds the earlier payment.
    `meanwhile`: action on the payment in doubt.
    """

    abort: Script = NOTHING_RUNNING
    search: Script = NONE
    earlier: bool = True
    seen: bool = True
    meanwhile: Callable[[Payment], Awaitable[Any]] = nothing_happens
    attention: frozenset[str] = frozenset()
    daemon: str = "every condition holds"


async def release(payment: Payment) -> None:
    word = {"operator": "Ana", "note": "it hangs"}
    while (reply := await payment.post("release", word)).status != 200:
        assert reply.json["code"] == "call_outstanding"  # a probe is under way


async def unknown_state(payment: Payment) -> None:
    assert await payment.event("TERMINAL_PONDERS") == 200


async def unusable_callback(payment: Payment) -> None:
    assert await payment.deliver(b"{}") == 400


async def large_callback(payment: Payment) -> None:
    assert await payment.deliver(b"x" * 65_537) == 413


async def interrupted_callback(payment: Payment) -> None:
    url = urlsplit(payment.requests[0].callback)
    _, writer = await connect(url.port or 443, payment.shop.daemon.ca)
    writer.write(f"POST {url.path} HTTP/1.1\r\nhost: x\r\ncontent-length: 500\r\n\r\n{{".encode())
    await writer.drain()
    writer.close()
    await payment.until(lambda it: it["missing_proof"][0]["code"] == "was_acknowledged")


async def unusable_hit(payment: Payment) -> None:
    """Make one search find the payment in a form without information. Later searches do not find the payment."""
    working = there(payment.shop.terminal.search)
    payment.shop.terminal.search = then(answering(200, {"client_transaction_id": payment.identity}), working)
    assert (await payment.post("reconcile")).status == 200
    await payment.until(lambda it: "quarantined_event" in attention(it))


UNUSABLE = frozenset({"quarantined_event"})
CASES: dict[str, Case] = {
    "the reply to an abort says that a payment was aborted": Case(abort=answering(200)),
    "the terminal does not know the path of the abort": Case(abort=answering(404)),
    "the reply to an abort is an error": Case(abort=answering(503)),
    "the reply to an abort is lost": Case(abort=hanging_up),
    "only the first reply to an abort says that no payment runs": Case(abort=then(NOTHING_RUNNING, answering(404))),
    "a second abort aborted a payment": Case(abort=in_turn(NOTHING_RUNNING, answering(200))),
    "a second abort may have aborted a payment": Case(abort=in_turn(NOTHING_RUNNING, answering(503))),
    "the reply to a search is an error": Case(search=answering(404)),
    "only the first search finds nothing": Case(search=then(NONE, answering(503))),
    "a search shows only other payments": Case(search=answering(200, event("0" * 8, "APPROVAL"))),
    "the terminal ended no earlier payment": Case(earlier=False),
    "a search does not show the terminal's earlier payment": Case(seen=False),
    "an event had an unknown state": Case(meanwhile=unknown_state, attention=frozenset({"unknown_status"})),
    "a callback was unusable": Case(meanwhile=unusable_callback, attention=UNUSABLE),
    "a callback was too large": Case(meanwhile=large_callback, attention=UNUSABLE),
    "a callback was interrupted": Case(meanwhile=interrupted_callback),
    "a search had found the payment": Case(meanwhile=unusable_hit, attention=UNUSABLE),
    "an operator released the terminal": Case(meanwhile=release, attention=frozenset({"released"})),
    "the search is not confirmed": Case(daemon="search not confirmed"),
    "the abort is not confirmed": Case(daemon="abort not confirmed"),
    "the second round is not due": Case(daemon="pause not over"),
    "posd may send no abort": Case(daemon="posd may send no abort"),
}


async def pay_before(counter: Shop, *, tried: bool = True) -> dict[str, Any]:
    """End a payment on the terminal. If `tried`, make a search find the payment. Return the final event."""
    payment = await counter.started()
    await payment.approve(3)
    final = event(payment.identity, "APPROVAL", "APPROVAL_REQUESTED", payment.serial)
    assert await payment.deliver(json.dumps(final).encode()) == 200
    if tried:
        counter.terminal.search = knowing(final)
        assert (await payment.post("reconcile")).json["last_search"]["result"] == "found"
    return final


async def doubt(counter: Shop, search: Script, abort: Script) -> Payment:
    """Return a payment in doubt on a terminal with these replies."""
    payment = counter.payment()
    counter.terminal.search, counter.terminal.abort, counter.terminal.start = search, abort, hanging_up
    assert (await payment.put()).json["phase"] == "in_doubt"
    return payment


async def bring_about(case: Case, counter: Shop) -> Payment:
    """Return the payment of a case after one search. The search completes the first round of the proof, if the case
    permits."""
    known = [await pay_before(counter, tried=case.seen)] if case.earlier else []
    payment = await doubt(counter, knowing(*(known if case.seen else []), otherwise=case.search), case.abort)
    await ask(payment, case)
    await case.meanwhile(payment)
    return payment


async def ask(payment: Payment, case: Case) -> None:
    """Request a search for the payment. If posd then sends no abort as a probe, request an abort too."""
    assert (await payment.post("reconcile")).status == 200
    if case.search is not NONE:
        assert (await payment.post("abort")).json["code"] == "nothing_running"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def daemons() -> AsyncIterator[dict[str, list[Shop]]]:
    """Yield the daemons, with a terminal for each case and some spare terminals."""
    async with AsyncExitStack() as stack:
        opened = {}
        for name, extra in DAEMONS.items():
            count = sum(case.daemon == name for case in CASES.values()) + 8
            opened[name] = await stack.enter_async_context(open_counters(count, extra))
        posds = [counters[0].daemon for counters in opened.values()]
        yield opened
        for posd in posds:
            await nothing_to_correct(posd)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def tried(request: pytest.FixtureRequest, daemons: dict[str, list[Shop]]) -> dict[str, Payment]:
    """Run all selected cases at the same time. Return their payments after the time of a proof and further searches."""
    wanted = {item.callspec.params.get("name") for item in request.session.items if hasattr(item, "callspec")}
    cases = {name: case for name, case in CASES.items() if name in wanted}
    payments = await asyncio.gather(*(bring_about(case, daemons[case.daemon].pop()) for case in cases.values()))
    await prove(daemons["every condition holds"].pop())  # this payment began later and lacks no condition
    for _ in range(3):
        await asyncio.gather(*(ask(payment, case) for payment, case in zip(payments, cases.values(), strict=True)))
    return dict(zip(cases, payments, strict=True))


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", CASES)
async def test_a_payment_stays_in_doubt_if_one_condition_is_missing(tried: dict[str, Payment], name: str) -> None:
    payment, case = tried[name], CASES[name]
    document = await payment.get()
    assert (document["phase"], document["outcome"], document["next_step"]) == ("in_doubt", None, "ask_person")
    assert attention(document) == case.attention | {"in_doubt"}
    assert document["missing_proof"], "the document does not name the missing proof"
    probed = payment.shop.terminal.aborts > 0
    # posd sends no probe, because no probe could prove anything
    assert probed == (case.daemon in ("every condition holds", "pause not over"))
    kinds = [item["kind"] for item in await payment.history()]
    if "quarantined" in kinds or "event" in kinds:
        heard = min(kinds.index(kind) for kind in ("quarantined", "event") if kind in kinds)
        assert kinds[heard:].count("abort_requested") <= 1  # one probe may have been under way
    await payment.end()


async def test_a_payment_was_never_started_if_every_condition_holds(daemons: dict[str, list[Shop]]) -> None:
    counter = daemons["every condition holds"].pop()
    known = await pay_before(counter, tried=False)
    payment = await doubt(counter, knowing(known, otherwise=NONE), NOTHING_RUNNING)
    aborts = counter.terminal.aborts
    outcome = await counter.daemon.outcome(payment.identity)
    assert (outcome["result"], outcome["status"], outcome["reached_acquirer"]) == ("not_started", None, False)
    assert outcome["failure_reason"]["code"] == "proved_not_started"
    assert [item["kind"] for item in outcome["evidence"]] == ["abort", "search", "abort", "search"]
    assert {item.get("result") for item in outcome["evidence"]} == {"none", None}
    assert {item.get("status") for item in outcome["evidence"]} == {409, None}
    times = [item["at"] for item in outcome["evidence"]]
    assert times == sorted(times)
    assert counter.terminal.aborts - aborts >= 2
    document = await payment.get()
    assert (document["phase"], document["next_step"], document["attention"]) == ("final", "new_id_ok", [])
    assert (await counter.daemon.call("GET", f"/terminals/{payment.serial}")).json["transaction"] is None
    assert len(payment.requests) == 1
    # No search had found a payment before. posd therefore tried a search for a payment that the terminal had ended.
    assert [item for item in counter.terminal.searches if known["client_transaction_id"].encode() in item.body]

    # A search that is proven to work needs no trial.
    asked = len(counter.terminal.searches)
    again = await doubt(counter, knowing(known, otherwise=NONE), NOTHING_RUNNING)
    assert (await counter.daemon.outcome(again.identity))["result"] == "not_started"
    assert all(again.identity.encode() in item.body for item in counter.terminal.searches[asked:])


async def prove(counter: Shop) -> Payment:
    """Return a payment that was proved never to have started."""
    known = await pay_before(counter)
    payment = await doubt(counter, knowing(known, otherwise=NONE), NOTHING_RUNNING)
    assert (await counter.daemon.outcome(payment.identity))["result"] == "not_started"
    return payment


@pytest.mark.slow
async def test_a_late_event_replaces_the_proof(daemons: dict[str, list[Shop]]) -> None:
    counter = daemons["every condition holds"].pop()
    payment = await prove(counter)
    seen = len(counter.daemon.lines)
    assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
    line = await counter.daemon.log_line("payment.attention", seen, transaction=payment.identity)
    assert (line["level"], line["code"]) == ("error", "outcome_corrected")
    document = await payment.get()
    assert (document["phase"], document["outcome"], document["next_step"]) == ("active", None, "ask_person")
    assert attention(document) == {"outcome_corrected"}
    await payment.approve(after=1)
    document = await payment.get()
    assert (document["outcome"]["result"], document["outcome"]["supersedes"]["result"]) == ("approved", "not_started")
    assert document["next_step"] == "ask_person"
    feed = (await counter.daemon.call("GET", "/feed?limit=500")).json["changes"]
    mine = [item for item in feed if item["id"] == payment.identity]
    assert [item["result"] for item in mine if item["phase"] == "final"] == ["not_started", "approved"]
    assert "outcome_corrected" in mine[-1]["attention"]
    word = {"code": "outcome_corrected", "operator": "Ana", "note": "the first till did not pay again"}
    assert (await payment.post("acknowledge", word, admin=True)).json["next_step"] == "done"


@pytest.mark.slow
async def test_an_event_before_the_last_reply_prevents_the_proof(daemons: dict[str, list[Shop]]) -> None:
    counter = daemons["every condition holds"].pop()
    known = await pay_before(counter)
    late: asyncio.Future[Payment] = asyncio.get_running_loop().create_future()
    aborts = 0

    async def nothing_runs(_request: Request, writer: asyncio.StreamWriter) -> None:
        nonlocal aborts
        aborts += 1
        if aborts > 1:  # the event arrives while the terminal replies that nothing runs
            payment = await late
            assert await payment.event("TERMINAL_ACKNOWLEDGED") == 200
        writer.write(http(409, b""))

    payment = await doubt(counter, knowing(known, otherwise=NONE), nothing_runs)
    late.set_result(payment)
    document = await payment.until(lambda it: it["phase"] != "in_doubt")
    assert (document["phase"], document["outcome"]) == ("active", None)
    assert await payment.event("TERMINAL_CANCELED", "TERMINAL_ACKNOWLEDGED") == 200
    assert (await payment.get())["attention"] == []


async def test_an_acknowledged_payment_never_becomes_not_started(daemons: dict[str, list[Shop]]) -> None:
    counter = daemons["every condition holds"].pop()
    known = await pay_before(counter)
    payment = counter.payment()
    counter.terminal.search, counter.terminal.abort = knowing(known, otherwise=NONE), NOTHING_RUNNING
    counter.terminal.start = acknowledging(payment.serial)
    assert (await payment.put()).json["phase"] == "active"
    proved = await prove(daemons["every condition holds"].pop())  # wait for the time of a proof
    assert proved.identity != payment.identity
    for _ in range(2):
        reply = await payment.post("abort")
        assert (reply.status, reply.json["code"]) == (409, "nothing_running")
        document = (await payment.post("reconcile")).json
        assert (document["phase"], document["last_search"]["result"]) == ("active", "none")
    await payment.end()


@pytest.mark.slow
async def test_the_tills_own_aborts_can_be_part_of_the_proof(daemons: dict[str, list[Shop]]) -> None:
    counter = daemons["posd may send no abort"].pop()
    known = await pay_before(counter)
    payment = await doubt(counter, knowing(known, otherwise=NONE), NOTHING_RUNNING)
    await payment.searched()
    assert counter.terminal.aborts == 0  # posd sends no abort by itself
    loop = asyncio.get_running_loop()
    assert (await payment.post("abort")).json["code"] == "nothing_running"
    await payment.searched(len(payment.searches) + 1)
    first = loop.time()
    assert (await payment.post("reconcile")).json["phase"] == "in_doubt"
    while loop.time() < first + SETTLE:
        assert (await payment.get())["phase"] == "in_doubt"
    assert (await payment.post("abort")).json["code"] == "nothing_running"
    outcome = await counter.daemon.outcome(payment.identity)
    assert outcome["result"] == "not_started"
    assert sorted(item["kind"] for item in outcome["evidence"]) == ["abort", "abort", "search", "search"]
    assert counter.terminal.aborts == 2


# Codes of advice to an operator about a missing proof (`missing_proof`).


async def lacking(payment: Payment) -> dict[str, str]:
    """Return the missing proofs of a payment, code -> detail."""
    return {item["code"]: item["detail"] for item in (await payment.get())["missing_proof"]}


async def test_a_doubt_on_a_new_terminal_says_which_proof_is_missing(daemons: dict[str, list[Shop]]) -> None:
    """The terminal has never run a payment, so a search without a result proves nothing. The text says what the
    operator can do.
    """
    counter = daemons["posd may send no abort"].pop()
    payment = counter.payment()
    counter.terminal.start, counter.terminal.search = hanging_up, NONE
    document = (await payment.put()).json
    assert document["phase"] == "in_doubt"
    told = {item["code"]: item["detail"] for item in document["missing_proof"]}
    assert told.keys() == {"search_never_found_any", "abort_not_asked"}
    assert "one complete payment" in told["search_never_found_any"]
    assert f"posd resolve {payment.identity}" in told["search_never_found_any"]
    assert f"posd abort {payment.identity}" in told["abort_not_asked"]
    (listed,) = (
        item
        for item in (await counter.daemon.call("GET", "/transactions?phase=in_doubt")).json["transactions"]
        if item["client_transaction_id"] == payment.identity
    )
    assert {item["code"] for item in listed["missing_proof"]} == set(told)
    waited = await counter.daemon.call("GET", f"/transactions/{payment.identity}/outcome?timeout=0")
    assert (waited.status, {item["code"] for item in waited.json["missing_proof"]}) == (202, set(told))
    assert await payment.event("TERMINAL_CANCELED") == 200
    assert await lacking(payment) == {}
