"""The delivery of transaction events (terminal API, Delivery): policy, attempts, persistent queue, sender.

| outcome of the consumer endpoint                      | decision        |
| ----------------------------------------------------- | --------------- |
| 2xx                                                   | delivered       |
| time-out, connection reset, DNS failure               | retry           |
| 408, 429, 500, 502, 503, 504                          | retry           |
| 400, 401, 403, 404, 409, 422                          | drop: permanent |
| any other status (redirects among them: not followed) | drop: permanent |

The last row is this simulator's choice, for the terminal API is silent: a consumer that counts on a retry which was
never promised shall lose the event here and not in a shop.

A terminal preserves the order of a transaction's events; an unruly network does not, and brings some of them twice
(at least once is all that is promised: terminal API, Delivery): see `Detour`.
"""

import asyncio
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import Enum, StrEnum
from pathlib import Path
from random import Random
from typing import Any

import httpx2

from posd.simulator import wire
from posd.simulator.clock import Clock, cancel
from posd.simulator.journal import Journal, SettingsError
from posd.simulator.ledger import Ledger


class Lost(StrEnum):
    """An attempt that brought no HTTP status; the words tell the reader of the ledger which it was."""

    TIMEOUT = "timeout"
    RESET = "connection_reset"
    DNS = "dns_failure"
    #: Refused or without a route: the consumer is away. The terminal API does not name it; it is a lost connection.
    UNREACHABLE = "unreachable"
    #: The receiver's certificate is not trusted: nothing was sent. The terminal API does not name it.
    TLS = "tls_failure"


#: The HTTP status, or how the attempt was lost.
Outcome = int | Lost
#: Attempts per event (terminal API, Delivery).
MAX_ATTEMPTS = 10
#: From the first attempt of an event, in terminal seconds: 15 minutes (terminal API, Delivery).
WINDOW_SECONDS = 900.0
#: Backoff base in terminal seconds (terminal API, Delivery).
BACKOFF_BASE_SECONDS = 2.0
#: Backoff cap in terminal seconds, before the jitter (terminal API, Delivery).
BACKOFF_CAP_SECONDS = 60.0
#: The longest that an unruly network holds an event up, in terminal seconds: longer than any pause of the scenarios, so
#: that the next event can overtake it, the final too.
DETOUR_SECONDS = 20.0
#: How many of the delivered events an unruly network brings once more.
AGAIN_SHARE = 1 / 3
#: The longest that it keeps the second one back, in terminal seconds: past the end of most payments.
AGAIN_SECONDS = 30.0


class Verdict(Enum):
    """What an outcome means for the event."""

    DELIVERED = "delivered"
    RETRY = "retry"
    PERMANENT = "permanent"


#: The statuses that the terminal API names; 2xx is a range and stands in `judge`.
VERDICTS: Mapping[int, Verdict] = {
    **dict.fromkeys((408, 429, 500, 502, 503, 504), Verdict.RETRY),
    **dict.fromkeys((400, 401, 403, 404, 409, 422), Verdict.PERMANENT),
}


def judge(outcome: Outcome) -> Verdict:
    """Look an outcome up in the terminal API's table."""
    if isinstance(outcome, Lost):
        return Verdict.RETRY
    if 200 <= outcome <= 299:
        return Verdict.DELIVERED
    return VERDICTS.get(outcome, Verdict.PERMANENT)


def backoff(attempt: int, jitter: float) -> float:
    """Return the delay in terminal seconds after `attempt` (0 is the first): min(60, 2 * 2^attempt) + random(0..2).

    `jitter` is the random part as a fraction, 0 to 1.
    """
    exponential: float = BACKOFF_BASE_SECONDS * 2.0**attempt
    return min(BACKOFF_CAP_SECONDS, exponential) + jitter * BACKOFF_BASE_SECONDS


@dataclass(frozen=True, slots=True)
class Delivered:
    """The consumer has it."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Try again after `delay` terminal seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class Drop:
    """Never try again; `reason` is `permanent_rejection`, `attempts_exhausted` or `window_exhausted`."""

    reason: str


Decision = Delivered | Retry | Drop


def decide(outcome: Outcome, *, attempts: int, elapsed: float, jitter: float) -> Decision:
    """Decide after an attempt.

    `attempts` counts those made, this one included; `elapsed` is terminal seconds since the first of them; `jitter` is
    a random fraction, 0 to 1. A retry that would begin after the window is not waited for.
    """
    match judge(outcome):
        case Verdict.DELIVERED:
            return Delivered()
        case Verdict.PERMANENT:
            return Drop("permanent_rejection")
        case Verdict.RETRY:
            delay = backoff(attempts - 1, jitter)
            return exhausted(attempts=attempts, elapsed=elapsed + delay) or Retry(delay)


def exhausted(*, attempts: int, elapsed: float) -> Drop | None:
    """Return why no attempt may be made any more: ten attempts or 15 minutes, whichever comes first; else None."""
    if attempts >= MAX_ATTEMPTS:
        return Drop("attempts_exhausted")
    if elapsed > WINDOW_SECONDS:
        return Drop("window_exhausted")
    return None


@dataclass(frozen=True, slots=True)
class Detour:
    """What an unruly network does to an event: it comes `delay` terminal seconds late.

    `again_after` is how many terminal seconds after its delivery it comes `again`.
    """

    delay: float
    again: bool
    again_after: float


def detoured(rng: Random) -> Detour:
    """Draw what happens to an event."""
    return Detour(rng.uniform(0, DETOUR_SECONDS), rng.random() < AGAIN_SHARE, rng.uniform(0, AGAIN_SECONDS))


#: How Python tells that the receiver hung up in the TLS handshake; older ones (Debian 12's) take it for an orderly end.
HANDSHAKE_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)


class Poster:
    """Posts JSON to a webhook receiver once; what follows is each channel's own policy.

    Each attempt has its own connection: a kept one that went stale would look like a failure of the consumer.

    Source: terminal API, Delivery, Printing.
    """

    def __init__(self, tls: ssl.SSLContext, timeout: float, clock: Clock) -> None:
        """`timeout` is in real seconds for a whole attempt; `tls` verifies the receivers' certificates."""
        self._timeout = timeout
        self._clock = clock
        #: There is no network: nothing is tried.
        self.offline = False
        self._client = _client(tls)
        # It trusts no CA: the handshake ends with the alert that the receiver's CA is unknown.
        self._distrustful = _client(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def post(self, url: str, body: bytes, *, distrusted: bool = False) -> Outcome:
        """Make one attempt and return its outcome, also where it fails.

        `distrusted`: as a terminal that trusts no receiver's certificate. Over plain HTTP there is none to distrust.
        """
        with self._clock.held():
            outcome = await self._attempt(self._distrustful if distrusted else self._client, url, body)
        if outcome is Lost.TIMEOUT:
            await self._clock.make_up(self._timeout)
        return outcome

    async def close(self) -> None:
        """Close both clients."""
        await self._client.aclose()
        await self._distrustful.aclose()

    async def _attempt(self, client: httpx2.AsyncClient, url: str, body: bytes) -> Outcome:
        if self.offline:
            return Lost.UNREACHABLE
        opened = []

        async def keep(name: str, info: Mapping[str, Any]) -> None:
            if name == "connection.connect_tcp.complete":
                opened.append(info["return_value"])

        try:
            async with asyncio.timeout(self._timeout):
                # Only the status is read: the body has no meaning, and can be endless.
                watch = {"trace": keep}
                async with client.stream("POST", url, content=body, extensions=watch) as response:
                    return response.status_code
        except (TimeoutError, httpx2.TimeoutException):
            return Lost.TIMEOUT
        except httpx2.ConnectError as error:
            return _why_not_connected(error)
        except httpx2.HTTPError:
            return Lost.RESET
        finally:
            for connection in opened:  # the client leaves it open where it is canceled in the TLS handshake
                await connection.aclose()


def _client(tls: ssl.SSLContext) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(
        verify=tls,
        trust_env=False,
        follow_redirects=False,
        timeout=None,
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        headers={"content-type": "application/json", "user-agent": "card-terminal"},
    )


def _why_not_connected(error: BaseException) -> Lost:
    causes = list(_causes(error))
    if any(isinstance(cause, HANDSHAKE_BROKEN_OFF) for cause in causes):
        return Lost.RESET
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return Lost.TLS
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Lost.DNS
    return Lost.UNREACHABLE


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@dataclass(slots=True)
class Item:
    """One event on its way. `body` is what is sent, JSON for the most part, on every attempt the same."""

    event_id: str
    client_transaction_id: str
    status: str
    url: str
    body: str
    attempts: int = 0
    #: A moment of the terminal's clock, which keeps its meaning over a restart; None before the first attempt.
    first_attempt_at: float | None = None
    #: It was delivered, or set out before, and waits to be delivered once more.
    again: bool = False
    #: It keeps no order with the others of its transaction.
    alone: bool = False
    #: The moment of the terminal's clock before which it does not set out; `Clock.after` makes one. None: at once.
    due: float | None = None
    #: The terminal trusts no CA: each attempt ends in the TLS handshake. Without effect over plain HTTP.
    distrusted: bool = False
    #: Tells it from every other item that waits; given by `put`.
    number: int = 0

    @property
    def named(self) -> dict[str, Any]:
        """What the ledger calls it by."""
        return {
            "client_transaction_id": self.client_transaction_id,
            "event_id": self.event_id,
            "status": self.status,
            "again": self.again,
        }


class QueueBusy(SettingsError):
    """Another simulator holds this queue."""


class Queue:
    """Events that wait for their delivery, by transaction, each in the order in which it was put.

    Each line of the file is one change: `put`, `attempt`, `again` or `done`. The file is emptied when nothing waits.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the journal at `path`. Raises OSError, SettingsError, QueueBusy."""
        self._lanes: dict[str, dict[int, Item]] = {}
        self._next = 0
        self._journal = Journal(path)
        try:
            self._journal.lock()
        except BlockingIOError as error:
            self._journal.close()
            raise QueueBusy(f"{path} is in use by another simulator: stop it, or choose another --state") from error
        self._journal.replay(lambda line: self._apply(wire.decode(line)))
        if not self._lanes:
            self._journal.empty()

    def transactions(self) -> list[str]:
        """Return the transactions that have something waiting."""
        return list(self._lanes)

    def items(self) -> Iterator[Item]:
        """Return everything that waits, each transaction's in the order in which it was put."""
        return (item for lane in list(self._lanes.values()) for item in list(lane.values()))

    def first(self, client_transaction_id: str) -> Item | None:
        """Return the oldest waiting item of a transaction, of those that keep its order."""
        lane = self._lanes.get(client_transaction_id, {})
        return next((item for item in lane.values() if not item.alone), None)

    def put(self, item: Item) -> Item:
        """Append an item to its transaction's lane; return it as it waits there, with its number."""
        number = self._next
        self._record({"op": "put", **asdict(item), "number": number})
        return self._lanes[item.client_transaction_id][number]

    def attempted(self, item: Item, *, at: float) -> None:
        """Count an attempt that begins at `at`, a moment of the terminal's clock."""
        self._record(_change("attempt", item) | {"at": at})

    def again(self, item: Item) -> None:
        """Let an item that was delivered wait for one more delivery, its attempts counted anew."""
        self._record(_change("again", item))

    def done(self, item: Item) -> None:
        """Take an item out: delivered or given up."""
        self._record(_change("done", item))
        if not self._lanes:
            self._journal.empty()

    def close(self) -> None:
        """Close the journal; what waits stays in it."""
        self._journal.close()

    def _record(self, change: dict[str, Any]) -> None:
        self._apply(change)
        self._journal.append(change)

    def _apply(self, change: dict[str, Any]) -> None:
        transaction, number = change["client_transaction_id"], change["number"]
        match change["op"]:
            case "put":
                item = Item(**{name: value for name, value in change.items() if name != "op"})
                item.first_attempt_at, item.due = _moment(item.first_attempt_at), _moment(item.due)
                self._lanes.setdefault(transaction, {})[number] = item
                self._next = number + 1
            case "attempt":
                item = self._lanes[transaction][number]
                item.attempts += 1
                if item.first_attempt_at is None:
                    item.first_attempt_at = float(change["at"])
            case "again":
                item = self._lanes[transaction][number]
                item.again, item.attempts, item.first_attempt_at = True, 0, None
            case "done":
                lane = self._lanes[transaction]
                del lane[number]
                if not lane:
                    del self._lanes[transaction]


def _moment(value: Any) -> float | None:
    """Return a moment as the clock has it: from the journal it comes as the digits that stand there."""
    return None if value is None else float(value)


def _change(op: str, item: Item) -> dict[str, Any]:
    return {"op": op, "client_transaction_id": item.client_transaction_id, "number": item.number}


class Sender:
    """Carries out the delivery policy: persistent, in order within a transaction, transactions independent.

    Each transaction has a lane. An event that goes alone has a lane of its own. So has each event of an unruly sender,
    which keeps no order: it is held up for a while, and some events come twice.

    Source: terminal API, Delivery.
    """

    def __init__(self, queue: Queue, ledger: Ledger, clock: Clock, poster: Poster, *, seed: str, unruly: bool) -> None:
        """`poster` is this sender's own; it is closed with it."""
        self._queue = queue
        self._ledger = ledger
        self._clock = clock
        self._poster = poster
        self._seed = seed
        self._unruly = unruly
        #: By transaction; of what goes alone by the item's number.
        self._lanes: dict[str | int, asyncio.Task[None]] = {}
        self._connected = asyncio.Event()
        self._connected.set()

    def start(self) -> None:
        """Take up what an earlier run left in the queue."""
        for item in self._queue.items():
            self._send(item)

    def submit(self, item: Item) -> None:
        """Queue an event; it is on file when this returns, and on its way soon after."""
        self._send(self._queue.put(item))

    def pause(self) -> None:
        """Lose the network: no attempt begins, and none is counted; one that is under way ends as it ends.

        The 15 minutes of an event that was tried before go on.
        """
        self._connected.clear()

    def resume(self) -> None:
        """Have the network again: what waits goes on its way, each transaction's in its order."""
        self._connected.set()

    async def stop(self) -> None:
        """Stop at once; what was not delivered stays queued."""
        await cancel(self._lanes.values())
        await self._poster.close()

    def _send(self, item: Item) -> None:
        """See to it that an item is on its way: in its transaction's lane, or alone where order is not kept."""
        lane = item.number if self._unruly or item.alone else item.client_transaction_id
        if lane in self._lanes:
            return
        self._lanes[lane] = asyncio.create_task(self._run(lane, item))

    async def _run(self, lane: str | int, item: Item) -> None:
        try:
            if self._unruly:
                await self._run_unruly(item)
            elif item.alone:
                await self._deliver(item)
                self._queue.done(item)
            else:
                await self._run_lane(item.client_transaction_id)
        finally:
            del self._lanes[lane]

    async def _run_lane(self, transaction: str) -> None:
        while (item := self._queue.first(transaction)) is not None:
            await self._deliver(item)
            self._queue.done(item)

    async def _run_unruly(self, item: Item) -> None:
        rng = Random(f"{self._seed}/{item.event_id}/detour")  # noqa: S311 - reproducible, not secret
        detour = detoured(rng)
        if not item.again:
            await self._clock.sleep(detour.delay)
            if await self._deliver(item) and detour.again:
                self._queue.again(item)
        if item.again:
            await self._clock.sleep(detour.again_after)
            await self._deliver(item)
        self._queue.done(item)

    async def _deliver(self, item: Item) -> bool:
        """Return when the item was delivered (True) or given up (False)."""
        jitter = Random(f"{self._seed}/{item.event_id}/{item.attempts}")  # noqa: S311 - reproducible, not secret
        if item.due is not None:
            await self._clock.sleep(self._clock.until(item.due))
        while True:
            await self._connected.wait()
            gone = self._gone(item)  # before a restart, or while the network was away
            if gone is not None:
                self._drop(item, gone)
                return False
            began = self._clock.now()
            self._queue.attempted(item, at=began)  # before it is made: killed in between, it is not made once more
            outcome = await self._poster.post(item.url, item.body.encode(), distrusted=item.distrusted)
            decision = decide(
                outcome,
                attempts=item.attempts,
                elapsed=self._clock.since(began if item.first_attempt_at is None else item.first_attempt_at),
                jitter=jitter.random(),
            )
            self._ledger.add(
                "attempt",
                **item.named,
                attempt=item.attempts,
                result=outcome,
                retry_in_seconds=round(decision.delay, 3) if isinstance(decision, Retry) else None,
            )
            match decision:
                case Delivered():
                    return True
                case Drop():
                    self._drop(item, decision)
                    return False
                case Retry():
                    await self._clock.sleep(decision.delay)

    def _gone(self, item: Item) -> Drop | None:
        """Return why no attempt may be made any more, None where one may."""
        if item.first_attempt_at is None:
            return None
        return exhausted(attempts=item.attempts, elapsed=self._clock.since(item.first_attempt_at))

    def _drop(self, item: Item, drop: Drop) -> None:
        self._ledger.add("dropped", **item.named, reason=drop.reason)
