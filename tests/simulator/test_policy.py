"""The delivery policy of the terminal API: exact delays and limits on a virtual clock, over real TLS.

This module repeats the specification's tables. No value comes from the tested code.
"""

import asyncio
import json
import ssl
import struct
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from socket import SO_LINGER, SOL_SOCKET
from typing import Any

import pytest

from posd.simulator.clock import VirtualClock
from posd.simulator.delivery import Poster, QueuedEvent, Sender
from posd.simulator.ledger import Ledger
from posd.simulator.network import client_context
from tests.rig.connections import serving
from tests.rig.ports import reserve
from tests.simulator.conftest import Receiver, Script

#: Start of the tests' clock, a time in 2026.
START = 1_780_000_000.0


class Delivering:
    """Control of a sender, with the arrivals at the receiver and their times."""

    def __init__(self, sender: Sender, ledger: Ledger, clock: VirtualClock, receiver: Receiver) -> None:
        self.sender = sender
        self.ledger = ledger
        self.clock = clock
        self.receiver = receiver

    def submit(
        self,
        transaction: str,
        *,
        url: str | None = None,
        say: int | None = None,
        event_id: str | None = None,
        **fields: Any,
    ) -> str:
        """Queue an event. Return its id. `say`: status with which the test's receiver replies."""
        event_id = event_id or str(uuid.uuid4())
        body = json.dumps({"event_id": event_id, "client_transaction_id": transaction, "status": "X", "say": say})
        self.sender.submit(QueuedEvent(event_id, transaction, "X", url or self.receiver.url, body, **fields))
        return event_id

    def attempts(self, event_id: str) -> list[dict[str, Any]]:
        return self.ledger.of("attempt", event_id=event_id)

    def dropped(self, event_id: str) -> list[str]:
        return [line["reason"] for line in self.ledger.of("dropped", event_id=event_id)]


class Book:
    """Times of arrival at the receiver, in terminal seconds since the clock's start."""

    def __init__(self, clock: VirtualClock, receiver: Receiver, answer: Script) -> None:
        self.arrivals: list[tuple[float, str]] = []
        self.answer = answer
        self._clock = clock
        receiver.answer = self._note

    def _note(self, event: dict[str, Any]) -> int | None:
        self.arrivals.append((self._clock.now() - START, event["event_id"]))
        return self.answer(event)

    def times(self, event_id: str) -> list[float]:
        return [at for at, arrived in self.arrivals if arrived == event_id]

    def first(self, event: dict[str, Any]) -> bool:
        """Record an arrival. Return whether the event arrives for the first time."""
        return len(self.times(event["event_id"])) == 1

    def order(self) -> list[str]:
        return [event_id for _, event_id in self.arrivals]


@asynccontextmanager
async def delivering(
    directory: Path, trust: Path, clock: VirtualClock, receiver: Receiver, *, timeout: float = 30.0
) -> AsyncIterator[Delivering]:
    """Run a sender on the queue of this directory. The end of the block is like a power cut."""
    ledger = Ledger()
    poster = Poster(client_context(trust), clock)
    sender = Sender(directory / "queue.jsonl", ledger, clock, poster, timeout=timeout, seed="policy", unruly=False)
    sender.start()
    try:
        yield Delivering(sender, ledger, clock, receiver)
    finally:
        await sender.stop()
        await poster.close()
        sender.close()


#: Statuses after which the terminal retries (specification, 6.2), and statuses after which it does not.
RETRIED = (408, 429, 500, 502, 503, 504)
PERMANENT = (400, 401, 403, 404, 409, 422)
#: Number of attempts; window, base and cap of the backoff in seconds (specification, 8).
ATTEMPTS = 10
WINDOW = 15 * 60
BASE = 2
CAP = 60
#: Delay after each attempt without its jitter: min(60, 2 * 2^attempt).
DELAYS = [min(CAP, BASE * 2**attempt) for attempt in range(ATTEMPTS - 1)]


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
async def post(
    tmp_path: Path, pem: dict[str, Path], clock: VirtualClock, receiver: Receiver
) -> AsyncIterator[Delivering]:
    async with delivering(tmp_path, pem["ca"], clock, receiver) as made:
        yield made


def refuse_always(_: dict[str, Any]) -> int:
    return 503


@pytest.mark.slow
async def test_each_delay_follows_the_formula_with_jitter_within_its_bounds(post: Delivering) -> None:
    """The terminal makes ten attempts at exact times, and no other attempt. The jitter covers its whole range."""
    book = Book(post.clock, post.receiver, refuse_always)
    events = [post.submit(f"transaction-{number}") for number in range(20)]
    await post.clock.advance(24 * 3600)
    jitters = []
    for event in events:
        moments = book.times(event)
        assert len(moments) == ATTEMPTS
        assert moments[0] == 0
        gaps = [after - before for before, after in pairwise(moments)]
        jitters += [gap - delay for gap, delay in zip(gaps, DELAYS, strict=True)]
        lines = post.attempts(event)
        assert [line["attempt"] for line in lines] == list(range(1, ATTEMPTS + 1))
        assert [line["retry_in_seconds"] for line in lines] == [*(pytest.approx(gap, abs=0.001) for gap in gaps), None]
        assert post.dropped(event) == ["attempts_exhausted"]
    assert all(-1e-6 <= jitter <= BASE + 1e-6 for jitter in jitters)
    for quarter in range(4):  # each quarter of the range has some of the 180 values
        assert any(BASE * quarter / 4 <= jitter < BASE * (quarter + 1) / 4 for jitter in jitters)
    assert len(set(jitters)) == len(jitters)


async def test_an_untried_event_waits_for_the_network_without_limit(post: Delivering) -> None:
    """At the end all delayed events are sent once, in the order of each transaction. No attempt is lost."""
    book = Book(post.clock, post.receiver, lambda _: 200)
    await post.sender.stop()
    made: dict[str, list[str]] = {"a": [], "b": []}
    for _ in range(4):
        for transaction, events in made.items():
            events.append(post.submit(transaction))
        await post.clock.advance(WINDOW)
    assert book.arrivals == []
    post.sender.start()
    await post.clock.advance(0)
    for events in made.values():
        assert [event for event in book.order() if event in events] == events
        assert [post.attempts(event)[0]["attempt"] for event in events] == [1] * 4
    assert len(book.arrivals) == 8


async def test_only_the_specified_replies_are_retried(post: Delivering) -> None:
    """Each status in the specification is tested with its own event. Other statuses are tested in the same way.

    After a status outside the specification, the terminal does not try again.
    """
    post.receiver.location = post.receiver.url + "/elsewhere"  # the terminal does not follow redirects
    book = Book(post.clock, post.receiver, lambda event: event["say"] if book.first(event) else 200)
    statuses = sorted({*RETRIED, *PERMANENT, *range(200, 230), 299, 300, 301, 302, 307, 308, 402, 405, 410, 413, 418})
    statuses += [425, 426, 451, 499, 501, 505, 507, 511, 599]
    events = {status: post.submit(f"transaction-{status}", say=status) for status in statuses}
    await post.clock.advance(3600)
    for status, event in events.items():
        results = [line["result"] for line in post.attempts(event)]
        if 200 <= status <= 299:
            assert (results, post.dropped(event)) == ([status], [])
        elif status in RETRIED:
            assert (results, post.dropped(event)) == ([status, 200], [])
        else:
            assert (results, post.dropped(event)) == ([status], ["permanent_rejection"])


async def test_an_event_waits_for_the_previous_event_and_not_for_other_transactions(post: Delivering) -> None:
    book = Book(post.clock, post.receiver, lambda event: 503 if event["event_id"] in refused else 200)
    stuck = [post.submit("stuck") for _ in range(3)]
    refused = {stuck[0]}
    free = [post.submit(f"free-{number}") for number in range(5) for _ in range(3)]
    await post.clock.advance(0)
    assert set(book.order()) == {stuck[0], *free}  # all other events arrive, at the first moment
    assert len(book.arrivals) == 1 + len(free)
    await post.clock.advance(100)
    assert set(book.order()[1 + len(free) :]) == {stuck[0]}
    refused.clear()
    await post.clock.advance(CAP + BASE)
    assert book.order()[-3:] == stuck
    assert book.times(stuck[1]) == book.times(stuck[2]) == book.times(stuck[0])[-1:]


async def test_an_event_sent_alone_waits_for_no_event_and_delays_no_event(post: Delivering) -> None:
    book = Book(post.clock, post.receiver, lambda event: event["say"])
    late = post.submit("transaction", say=200, alone=True, due=post.clock.after(30))
    stuck = post.submit("transaction", say=503, alone=True)
    first, second = post.submit("transaction", say=200), post.submit("transaction", say=200)
    again = post.submit("transaction", say=200, alone=True, again=True, due=post.clock.after(7.5))
    await post.clock.advance(60)
    assert [book.times(event) for event in (late, first, second, again)] == [[30], [0], [0], [7.5]]
    assert len(book.times(stuck)) > 3
    assert [line["again"] for line in post.attempts(again)] == [True]


async def test_the_event_queue_survives_a_power_cycle_unchanged(
    tmp_path: Path, pem: dict[str, Path], clock: VirtualClock, receiver: Receiver
) -> None:
    """Over several power cycles the terminal makes ten attempts in total, and continues the sequence of delays."""
    book = Book(clock, receiver, lambda event: 503 if event["event_id"] == first else 200)
    attempts: list[int] = []
    first, others = "", []
    for run in range(5):
        async with delivering(tmp_path, pem["ca"], clock, receiver) as post:
            if run == 0:
                first = post.submit("transaction")
                others = [post.submit("transaction"), post.submit("transaction", alone=True, due=clock.after(200))]
            await clock.advance(30)
            attempts += [line["attempt"] for line in post.attempts(first)]
            assert [event for event in book.order() if event != first] == []
        await clock.advance(5)
    assert attempts == list(range(1, len(attempts) + 1))
    assert len(attempts) < ATTEMPTS
    async with delivering(tmp_path, pem["ca"], clock, receiver) as post:
        await clock.advance(3600)
        attempts += [line["attempt"] for line in post.attempts(first)]
        assert attempts == list(range(1, ATTEMPTS + 1))
        assert post.dropped(first) == ["attempts_exhausted"]
        assert book.times(others[0]) == book.times(first)[-1:]
        assert book.times(others[1]) == [200]
    assert len(book.times(first)) == ATTEMPTS


@pytest.mark.parametrize(("off_until", "tried"), [(WINDOW - 1, 1), (WINDOW + 1, 0)])
async def test_the_retry_window_continues_while_the_terminal_is_off(
    tmp_path: Path, pem: dict[str, Path], clock: VirtualClock, receiver: Receiver, off_until: float, tried: int
) -> None:
    book = Book(clock, receiver, refuse_always)
    async with delivering(tmp_path, pem["ca"], clock, receiver) as post:
        event = post.submit("transaction")
        await clock.advance(0)
    await clock.advance(off_until)
    async with delivering(tmp_path, pem["ca"], clock, receiver) as post:
        await clock.advance(3600)
        assert len(book.times(event)) == 1 + tried
        assert post.dropped(event) == ["window_exhausted"]
    assert (tmp_path / "queue.jsonl").read_bytes() == b""


Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def read_request(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Close the connection with RST when a byte arrives."""
    await reader.read(1)
    writer.get_extra_info("socket").setsockopt(SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while await reader.read(65536):
        pass


async def hang_up_after_the_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await read_request(reader)


#: Failures of a connection: the receiver's behaviour, whether the behaviour is within TLS, and the word in the ledger.
FAILURES: dict[str, tuple[Behaviour, bool, str]] = {
    "reset in the handshake": (reset, False, "connection_reset"),
    "silent in the handshake": (say_nothing, False, "timeout"),
    "closed after the request": (hang_up_after_the_request, True, "connection_reset"),
    "reset after the request": (reset, True, "connection_reset"),
    "silent after the request": (say_nothing, True, "timeout"),
}


@asynccontextmanager
async def failing(behaviour: Behaviour, context: ssl.SSLContext | None) -> AsyncIterator[str]:
    """Serve connections that fail. Yield the URL."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            await behaviour(reader, writer)

    async with serving(connected, tls=context) as port:
        yield f"https://127.0.0.1:{port}/hook"


async def assert_retried(post: Delivering, url: str, word: str, **fields: Any) -> None:
    event = post.submit(f"transaction-{word}", url=url, **fields)
    await post.clock.advance(10)
    lines = post.attempts(event)
    assert {line["result"] for line in lines} == {word}
    assert len(lines) >= 2
    for line, delay in zip(lines, DELAYS, strict=False):
        assert delay <= line["retry_in_seconds"] <= delay + BASE


@pytest.mark.quick(3)
@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failed_connection_is_retried(
    tmp_path: Path,
    pem: dict[str, Path],
    clock: VirtualClock,
    receiver: Receiver,
    server_tls: ssl.SSLContext,
    failure: str,
) -> None:
    behaviour, within_tls, word = FAILURES[failure]
    timeout = 0.5 if word == "timeout" else 30.0
    async with (
        failing(behaviour, server_tls if within_tls else None) as url,
        delivering(tmp_path, pem["ca"], clock, receiver, timeout=timeout) as post,
    ):
        await assert_retried(post, url, word)


async def test_an_unreachable_unknown_or_untrusted_receiver_is_retried(
    tmp_path: Path, pem: dict[str, Path], clock: VirtualClock, receiver: Receiver
) -> None:
    async with delivering(tmp_path, pem["ca"], clock, receiver) as post:
        await assert_retried(post, f"https://127.0.0.1:{reserve()}/hook", "unreachable")
        await assert_retried(post, "https://consumer..invalid/hook", "dns_failure")
        await assert_retried(post, post.receiver.url, "tls_failure", distrusted=True)
        assert post.receiver.deliveries == []
