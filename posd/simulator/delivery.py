"""Delivery of transaction events (terminal API, Delivery): policy, attempts, persistent queue, sender.

| outcome of the consumer endpoint                      | decision        |
| ----------------------------------------------------- | --------------- |
| 2xx                                                   | delivered       |
| time-out, connection reset, DNS failure               | retry           |
| 408, 429, 500, 502, 503, 504                          | retry           |
| 400, 401, 403, 404, 409, 422                          | drop: permanent |
| any other status (redirects among them: not followed) | drop: permanent |

The last row is this simulator's choice, because the terminal API does not define it. So a consumer that relies on an
undocumented retry loses the event in the simulator, and its developer finds the fault before a shop does.

A terminal preserves the order of a transaction's events. An unruly network changes the order and delivers some events
twice (see `Sender._detoured`). The terminal API promises only delivery at least once (terminal API, Delivery).
"""

import asyncio
import itertools
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import httpx2
import msgspec

from posd.simulator.clock import Clock, cancel
from posd.simulator.ledger import Journal, Ledger
from posd.simulator.wire import SettingsError

#: Attempt without an HTTP status. The word appears in the ledger.
AttemptLost = Literal[
    "timeout",
    "connection_reset",
    "dns_failure",
    # The connection was refused, or there is no route. The terminal API does not list this case. The simulator counts
    # it as a lost connection.
    "unreachable",
    # The receiver's certificate is not trusted, so nothing was sent. The terminal API does not list this case.
    "tls_failure",
]
#: Outcome of an attempt: the HTTP status, or why there is none.
Outcome = int | AttemptLost
#: Attempts per event (terminal API, Delivery).
MAX_ATTEMPTS = 10
#: Longest time from the first attempt of an event to the last, in terminal seconds: 15 minutes (terminal API,
#: Delivery).
WINDOW_SECONDS = 900.0
#: Backoff base in terminal seconds (terminal API, Delivery).
BACKOFF_BASE_SECONDS = 2.0
#: Backoff cap in terminal seconds, before the jitter (terminal API, Delivery).
BACKOFF_CAP_SECONDS = 60.0
#: Longest delay of an event on an unruly network, in terminal seconds. The delay is longer than any pause of the
#: scenarios, so that the next event, even the final, can overtake it.
DETOUR_SECONDS = 20.0
#: Share of the delivered events that an unruly network delivers twice.
AGAIN_SHARE = 1 / 3
#: Longest time to the second delivery, in terminal seconds. Most payments have ended by then.
AGAIN_SECONDS = 30.0


#: The statuses after which an event is sent again.
RETRIED = frozenset({408, 429, 500, 502, 503, 504})

#: Reason why no further attempt is made.
DropReason = Literal["permanent_rejection", "attempts_exhausted", "window_exhausted"]


def backoff(attempt: int, jitter: float) -> float:
    """Return the delay in terminal seconds after `attempt` (0 is the first): min(60, 2 * 2^attempt) + random(0..2).

    `jitter`: the random part as a fraction, 0 to 1.
    """
    exponential: float = BACKOFF_BASE_SECONDS * 2.0**attempt
    return min(BACKOFF_CAP_SECONDS, exponential) + jitter * BACKOFF_BASE_SECONDS


def decide(outcome: Outcome, *, attempts: int, elapsed: float, jitter: float) -> float | DropReason | None:
    """Return the terminal seconds until the next attempt, or the reason why there is none. Return None if the event was
    delivered.

    `attempts`: number of attempts, including this one. `elapsed`: terminal seconds since the first attempt. `jitter`: a
    random fraction, 0 to 1. If the next attempt would begin after the window, the event is dropped at once.
    """
    if isinstance(outcome, int) and 200 <= outcome <= 299:
        return None
    if isinstance(outcome, int) and outcome not in RETRIED:
        return "permanent_rejection"
    delay = backoff(attempts - 1, jitter)
    return exhausted(attempts=attempts, elapsed=elapsed + delay) or delay


def exhausted(*, attempts: int, elapsed: float) -> DropReason | None:
    """Return why no further attempt is allowed (after ten attempts, or after 15 minutes), else None."""
    if attempts >= MAX_ATTEMPTS:
        return "attempts_exhausted"
    return "window_exhausted" if elapsed > WINDOW_SECONDS else None


#: Exceptions that Python raises if a receiver disconnects during the TLS handshake. Older versions (Debian 12) raise
#: SSLZeroReturnError.
HANDSHAKE_BROKEN_OFF = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionResetError)


class Poster:
    """Client for POSTs of JSON to the webhook receivers of one terminal. It never retries. Some callers retry.

    Each attempt has its own connection, because a stale connection would look like a failure of the consumer.

    Source: terminal API, Delivery, Printing.
    """

    def __init__(self, tls: ssl.SSLContext, clock: Clock) -> None:
        """`tls`: verifies the receivers' certificates."""
        self._clock = clock
        #: Whether there is no network, so that attempts fail at once.
        self.offline = False
        self._client = _client(tls)
        # This context trusts no CA, so the handshake ends with the alert unknown_ca.
        self._distrustful = _client(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))

    async def post(self, url: str, body: bytes, timeout: float, *, distrusted: bool = False) -> Outcome:
        """Make one attempt and return its outcome, even a failure.

        `timeout`: real seconds for the whole attempt. `distrusted`: fail as a terminal that trusts no receiver's
        certificate. Over plain HTTP this has no effect.
        """
        with self._clock.held():
            outcome = await self._attempt(self._distrustful if distrusted else self._client, url, body, timeout)
        if outcome == "timeout":
            await self._clock.make_up(timeout)
        return outcome

    async def close(self) -> None:
        """Close both clients."""
        await self._client.aclose()
        await self._distrustful.aclose()

    async def _attempt(self, client: httpx2.AsyncClient, url: str, body: bytes, timeout: float) -> Outcome:
        if self.offline:
            return "unreachable"
        opened = []

        async def keep(name: str, info: Mapping[str, Any]) -> None:
            if name == "connection.connect_tcp.complete":
                opened.append(info["return_value"])

        try:
            async with asyncio.timeout(timeout):
                # Only the status is read, because the body has no meaning, and can be endless.
                watch = {"trace": keep}
                async with client.stream("POST", url, content=body, extensions=watch) as response:
                    return response.status_code
        except (TimeoutError, httpx2.TimeoutException):
            return "timeout"
        except httpx2.ConnectError as error:
            return _why_not_connected(error)
        except httpx2.HTTPError:
            return "connection_reset"
        finally:
            for connection in opened:  # a client that is cancelled during the TLS handshake leaves the connection open
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


def _why_not_connected(error: BaseException) -> AttemptLost:
    causes = list(_causes(error))
    if any(isinstance(cause, HANDSHAKE_BROKEN_OFF) for cause in causes):
        return "connection_reset"
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return "tls_failure"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "dns_failure"
    return "unreachable"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


@dataclass(slots=True)
class QueuedEvent:
    """One event to deliver. `body` (usually JSON) is the same on every attempt."""

    event_id: str
    client_transaction_id: str
    status: str
    url: str
    body: str
    attempts: int = 0
    #: Time of the first attempt: a moment of the terminal's clock, which stays valid after a restart. None before the
    #: first attempt.
    first_attempt_at: float | None = None
    #: Whether this is a repeated delivery of an event.
    again: bool = False
    #: Whether this event is sent without regard to the order of its transaction.
    alone: bool = False
    #: Planned moment of the first attempt on the terminal's clock, from `Clock.after`. None: at once.
    due: float | None = None
    #: Whether the terminal trusts no CA, so that each attempt ends in the TLS handshake. Over plain HTTP this has no
    #: effect.
    distrusted: bool = False
    #: Unique number among the waiting events. `Sender.submit` sets it.
    number: int = 0

    @property
    def named(self) -> dict[str, Any]:
        """The fields of the event in the ledger."""
        return {
            "client_transaction_id": self.client_transaction_id,
            "event_id": self.event_id,
            "status": self.status,
            "again": self.again,
        }


class Sender:
    """Sender of events. The waiting events survive a restart.

    A worker is a task that sends events in order. Each transaction has one worker. An event marked `alone` has a worker
    to itself, and so has each event on an unruly network.

    Each line of the file is one change: a new or changed event (`put`), or its removal (`done`). The file is emptied
    when no event waits.

    Source: terminal API, Delivery.
    """

    def __init__(
        self, path: Path, ledger: Ledger, clock: Clock, poster: Poster, *, timeout: float, seed: str, unruly: bool
    ) -> None:
        """Open or create the file of waiting events. `timeout`: real seconds for an attempt.

        Raise OSError. Raise SettingsError if another simulator uses the file.
        """
        #: Number -> waiting event, in the order of the submissions.
        self.waiting: dict[int, QueuedEvent] = {}
        self._journal = Journal(path)
        try:
            self._journal.lock()
        except BlockingIOError as error:
            self._journal.close()
            raise SettingsError(f"{path} is in use by another simulator: stop it, or choose another --state") from error
        self._journal.replay(lambda line: self._replay(**msgspec.json.decode(line)))
        self._numbers = itertools.count(max(self.waiting, default=-1) + 1)
        if not self.waiting:
            self._journal.empty()
        self._ledger = ledger
        self._clock = clock
        self._poster = poster
        self._timeout = timeout
        self._seed = seed
        self._unruly = unruly
        #: Transaction, or number of an event marked `alone` -> worker.
        self._workers: dict[str | int, asyncio.Task[None]] = {}
        self._running = False

    def start(self) -> None:
        """Send the waiting events, in order within each transaction."""
        self._running = True
        for item in self.waiting.values():
            self._send(item)

    def submit(self, item: QueuedEvent) -> None:
        """Queue an event. On return the event is in the file. It is sent soon after, or after the next start."""
        for each in self._detoured(item) if self._unruly else [item]:
            each.number = next(self._numbers)
            self.waiting[each.number] = each
            self._put(each)
            self._send(each)

    async def stop(self) -> None:
        """Stop at once, as without power or network. Undelivered events stay queued.

        For an event that was already attempted, the retry limit of 15 minutes continues.
        """
        self._running = False
        await cancel(self._workers.values())
        self._workers.clear()  # a task that is cancelled before it begins does not remove itself

    def close(self) -> None:
        """Close the file. Waiting events stay in it."""
        self._journal.close()

    def _put(self, item: QueuedEvent) -> None:
        self._journal.append({"op": "put", **asdict(item)})

    def _replay(self, op: str, number: int, **change: Any) -> None:
        match op:
            case "put":
                self.waiting[number] = QueuedEvent(number=number, **change)
            case "done":
                del self.waiting[number]
            case _:
                raise ValueError(f"{op} is not a change of this version")

    def _first(self, client_transaction_id: str) -> QueuedEvent | None:
        """Return the oldest event of a transaction that is not marked `alone`, or None."""
        items = (item for item in self.waiting.values() if item.client_transaction_id == client_transaction_id)
        return next((item for item in items if not item.alone), None)

    def _send(self, item: QueuedEvent) -> None:
        """Start the worker of an event, unless it runs."""
        key = item.number if item.alone else item.client_transaction_id
        if self._running and key not in self._workers:
            self._workers[key] = asyncio.create_task(self._run(key, item))

    async def _run(self, key: str | int, item: QueuedEvent) -> None:
        try:
            if item.alone:
                await self._deliver(item)
            else:
                while (first := self._first(item.client_transaction_id)) is not None:
                    await self._deliver(first)
        finally:
            self._workers.pop(key, None)

    def _detoured(self, item: QueuedEvent) -> list[QueuedEvent]:
        """Return the deliveries of an event on an unruly network: late, in random order, and some events twice."""
        rng = Random(f"{self._seed}/{item.event_id}/detour")  # noqa: S311 - reproducible, not secret
        delay, arrives_twice = rng.uniform(0, DETOUR_SECONDS), rng.random() < AGAIN_SHARE
        again = delay + rng.uniform(0, AGAIN_SECONDS)
        due, due_again = (max(item.due or 0.0, self._clock.after(seconds)) for seconds in (delay, again))
        first = replace(item, alone=True, due=due)
        return [first, replace(first, again=True, due=due_again)] if arrives_twice else [first]

    async def _deliver(self, item: QueuedEvent) -> None:
        """Send an event until it is delivered or dropped. Then remove it."""
        reason = await self._attempt(item)
        if reason is not None:
            self._ledger.add("dropped", **item.named, reason=reason)
        del self.waiting[item.number]
        change = {"op": "done", "client_transaction_id": item.client_transaction_id, "number": item.number}
        self._journal.append(change)
        if not self.waiting:
            self._journal.empty()

    async def _attempt(self, item: QueuedEvent) -> DropReason | None:
        """Send an event until it is delivered or dropped. Return the reason if it was dropped, or None."""
        jitter = Random(f"{self._seed}/{item.event_id}/{item.attempts}")  # noqa: S311 - reproducible, not secret
        if item.due is not None:
            await self._clock.sleep(self._clock.until(item.due))
        while True:
            if item.first_attempt_at is not None:  # an event also expires while the terminal has no power or network
                gone = exhausted(attempts=item.attempts, elapsed=self._clock.since(item.first_attempt_at))
                if gone is not None:
                    return gone
            began = self._clock.now()
            # Record the attempt first, so that a kill does not lead to an extra attempt.
            item.attempts += 1
            item.first_attempt_at = began if item.first_attempt_at is None else item.first_attempt_at
            self._put(item)
            outcome = await self._poster.post(item.url, item.body.encode(), self._timeout, distrusted=item.distrusted)
            decision = decide(
                outcome,
                attempts=item.attempts,
                elapsed=self._clock.since(item.first_attempt_at),
                jitter=jitter.random(),
            )
            self._ledger.add(
                "attempt",
                **item.named,
                attempt=item.attempts,
                result=outcome,
                retry_in_seconds=round(decision, 3) if isinstance(decision, float) else None,
            )
            if not isinstance(decision, float):
                return decision
            await self._clock.sleep(decision)
