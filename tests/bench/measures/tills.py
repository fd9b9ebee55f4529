"""What a till waits for: the outcome after the final event, and the terminal's start after its PUT."""

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from uuid import uuid4

import httpx2

from tests.bench.bench import Bench, percentile, sync_seconds
from tests.bench.load import trusting
from tests.bench.rows import Row
from tests.bench.shop import AMOUNT, Payment, Shop, open_shop
from tests.bench.wire import Wire, call, taken_over, till
from tests.support.senders import crowd

#: The outcome's time by the acknowledgement's, and what a thousand other waiting tills may add.
OUTCOME_LIMIT = 2.0
CROWD_LIMIT = 1.2
#: The start by a bare call and one sync.
START_LIMIT = 2.0

_MILLI = 1000.0


@dataclass
class Outcomes:
    """Seconds: of acknowledgements that no caller waits for, and from a final event sent to the outcome at the till."""

    acknowledgements: list[float] = field(default_factory=list)
    outcomes: list[float] = field(default_factory=list)


async def _deliver(shop: Shop, serials: Sequence[str]) -> Outcomes:
    """Run a payment on each terminal, the events over one connection; a till waits for every other payment."""
    times = Outcomes()
    context = trusting(shop.daemon.ca)
    lan = Wire(await asyncio.open_connection("127.0.0.1", shop.daemon.port, ssl=context))
    waiter = await till(shop.daemon.till_socket)
    async with shop.till() as client:
        payments = [await shop.start_one(client, serial) for serial in serials]
    try:
        for number, payment in enumerate(payments):
            *before, final = payment.events()
            waiting = number % 2 == 0
            if waiting:
                waiter.send(call("GET", f"{payment.identity}/outcome"))
            for event in before:
                sent = lan.send(event)
                heard = await lan.answer(200)
                if not waiting:
                    times.acknowledgements.append(heard - sent)
            sent = lan.send(final)
            if waiting:
                _, known = await asyncio.gather(lan.answer(200), waiter.answer(200))
                times.outcomes.append(known - sent)
            else:
                times.acknowledgements.append(await lan.answer(200) - sent)
    finally:
        lan.close()
        waiter.close()
    return times


@asynccontextmanager
async def _crowd(shop: Shop, payments: Sequence[Payment]) -> AsyncIterator[None]:
    """Have a till wait for each of these payments during the block."""
    tills = []
    try:
        with crowd(shop.daemon.till_socket, len(payments)) as connections:
            for payment, connection in zip(payments, connections, strict=True):
                waiter = await taken_over(connection)
                tills.append(waiter)
                waiter.send(call("GET", f"{payment.identity}/outcome"))
            async with shop.till() as client:  # connections are accepted in order: the others wait by then
                (await client.get("/version")).raise_for_status()
            yield
    finally:
        for waiter in tills:
            waiter.close()


async def _outcomes(bench: Bench) -> Sequence[Row]:
    """From the final event sent to the outcome at the till that waits for it: alone, and among others that wait."""
    others, each = bench.pick(1000, 10), bench.pick(60, 4)
    alone, crowded = [], []
    async with open_shop(bench.directory("outcomes"), others + each) as shop:
        waited_for = await shop.start(others)
        measured = shop.serials[others:]
        await _deliver(shop, measured)  # the first ones find nothing warm
        for number in bench.rounds():
            bench.say(f"outcome at the waiting till, round {number}")
            alone.append(await _deliver(shop, measured))
            async with _crowd(shop, waited_for):
                crowded.append(await _deliver(shop, measured))
    acknowledged = _median(alone, "acknowledgements")
    known, known_in_crowd = _median(alone, "outcomes"), _median(crowded, "outcomes")
    details = {
        "payments_a_round": each // 2,
        "acknowledgements_ms": [_milli(item.acknowledgements) for item in alone],
        "outcomes_ms": [_milli(item.outcomes) for item in alone],
        "outcomes_99_ms": [percentile(item.outcomes, 99) * _MILLI for item in alone],
        "others": others,
        "acknowledgements_among_others_ms": [_milli(item.acknowledgements) for item in crowded],
        "outcomes_among_others_ms": [_milli(item.outcomes) for item in crowded],
        "outcomes_99_among_others_ms": [percentile(item.outcomes, 99) * _MILLI for item in crowded],
    }
    ratios = [statistics.median(item.outcomes) / statistics.median(item.acknowledgements) for item in alone]
    crowd_ratios = [
        statistics.median(with_others.outcomes) / statistics.median(without.outcomes)
        for without, with_others in zip(alone, crowded, strict=True)
    ]
    return [
        Row(
            figure="final event posted → the waiting till has the outcome, median, by an acknowledgement",
            rounds=ratios,
            limit=OUTCOME_LIMIT,
            unit="×",
            at_least=False,
            ours=f"{known * _MILLI:.2f} ms",
            reference=f"acknowledgement {acknowledged * _MILLI:.2f} ms",
            note="quiet, one connection; the acknowledgements are of payments between them for which no till waits",
            details=details,
        ),
        Row(
            figure=f"the same with {others:,} other waiting tills, by alone",
            rounds=crowd_ratios,
            limit=CROWD_LIMIT,
            unit="×",
            at_least=False,
            ours=f"{known_in_crowd * _MILLI:.2f} ms",
            reference=f"alone {known * _MILLI:.2f} ms",
            note="each of the others waits for another payment",
        ),
    ]


def _median(rounds: Sequence[Outcomes], what: str) -> float:
    return statistics.median(value for item in rounds for value in getattr(item, what))


def _milli(values: Sequence[float]) -> float:
    return statistics.median(values) * _MILLI


@dataclass
class Starts:
    """Seconds of one round: from a PUT, and from a bare call's beginning, to the request at the terminal."""

    puts: list[float] = field(default_factory=list)
    calls: list[float] = field(default_factory=list)
    sync: float = 0.0

    @property
    def ratio(self) -> float:
        """A start by a bare call and one sync."""
        return statistics.median(self.puts) / (statistics.median(self.calls) + self.sync)


async def _start(bench: Bench, shop: Shop, bare: httpx2.AsyncClient) -> Starts:
    """Start a payment on each terminal, and call it as bare as the till itself could, one after the other."""
    times = Starts(sync=sync_seconds(bench.home))
    wire = await till(shop.daemon.till_socket)
    payments = []
    try:
        for serial in shop.serials:
            identity = str(uuid4())
            body = json.dumps({"terminal": serial, "amount": AMOUNT}).encode()
            sent = wire.send(call("PUT", identity, body))
            await wire.answer(201)
            arrived, path = shop.terminals.arrived[identity]
            times.puts.append(arrived - sent)
            payments.append(Payment(identity, serial, path))
            request = {
                "client_transaction_id": str(uuid4()),
                "amount": AMOUNT,
                "events_webhook_url": f"https://127.0.0.1:{shop.daemon.port}{path}",
            }
            sent = time.perf_counter()
            response = await bare.post(f"{shop.url}/{serial}/terminal/v1/async/charge", json=request)
            response.raise_for_status()
            times.calls.append(shop.terminals.arrived[request["client_transaction_id"]][0] - sent)
    finally:
        wire.close()
    await shop.end(payments)
    return times


async def _starts(bench: Bench, *, secure: bool) -> Row:
    """From the till's PUT to the request at the terminal, against a call that the till would make itself."""
    scheme = "https" if secure else "http"
    rounds = []
    async with (
        open_shop(bench.directory(f"starts-{scheme}"), bench.pick(60, 4), secure=secure) as shop,
        httpx2.AsyncClient(
            verify=shop.trust, trust_env=False, limits=httpx2.Limits(max_keepalive_connections=0)
        ) as bare,
    ):
        await _start(bench, shop, bare)
        for number in bench.rounds():
            bench.say(f"start at a terminal ({scheme}), round {number}")
            rounds.append(await _start(bench, shop, bare))
    puts = statistics.median(value for item in rounds for value in item.puts)
    calls = statistics.median(value for item in rounds for value in item.calls)
    sync = statistics.median(item.sync for item in rounds)
    return Row(
        figure=f"till's PUT → request at the terminal ({scheme}), median, by a bare call and one sync",
        rounds=[item.ratio for item in rounds],
        limit=START_LIMIT,
        unit="×",
        at_least=False,
        ours=f"{puts * _MILLI:.2f} ms",
        reference=f"bare call {calls * _MILLI:.2f} ms, sync {sync * _MILLI:.2f} ms",
        note="both on a fresh connection, of a client that was made before",
        details={
            "starts_a_round": len(rounds[0].puts),
            "puts_ms": [_milli(item.puts) for item in rounds],
            "puts_99_ms": [percentile(item.puts, 99) * _MILLI for item in rounds],
            "bare_calls_ms": [_milli(item.calls) for item in rounds],
            "sync_ms": [item.sync * _MILLI for item in rounds],
        },
    )


async def measure(bench: Bench) -> Sequence[Row]:
    """Measure what a till waits for."""
    return [*await _outcomes(bench), await _starts(bench, secure=False), await _starts(bench, secure=True)]
