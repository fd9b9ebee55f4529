"""Starting and aborting transactions (design 4).

Each start runs as a task of its own, so that neither a till that hangs up nor one that repeats its call changes
anything: the intent is committed, the request is sent once, the answer is judged and committed. What can crash
between two of these lines leaves `starting` on disk, which the next start turns into `in_doubt`.
"""

import asyncio
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import partial

import structlog

from posd.core.callbacks import Channel
from posd.core.decisions import conclude_start
from posd.core.problems import Problem
from posd.core.profile import Profile
from posd.core.requests import Fault, MalformedJson, StartRequest, differing_fields, read_start, start_body
from posd.core.starts import NAMES, Attempt, NotSent, Replied, judge
from posd.core.times import iso
from posd.core.transactions import OperationType, Phase, Transaction
from posd.services.callback_urls import CallbackUrls
from posd.services.outstanding import Outstanding
from posd.store import leases, transactions
from posd.store.errors import CommitUncertain, StorageUnavailable
from posd.store.store import Store
from posd.store.writer import Unit
from posd.terminals.fleet import Fleet

#: While the disk is full, how often the judgement of a start is tried again, in seconds.
RETRY_STORING_SECONDS = 1.0

#: A transaction, and whether this call started it.
Started = tuple[Transaction, bool]

log = structlog.get_logger("posd.payments")


class Payments:
    """Use cases of the till: start."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        profile: Profile,
        callback_urls: CallbackUrls,
        outstanding: Outstanding,
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._profile = profile
        self._callback_urls = callback_urls
        self._outstanding = outstanding
        self._now = now
        self._running: dict[str, asyncio.Future[Started]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False

    async def start(self, client_transaction_id: str, body: bytes) -> tuple[Transaction, bool]:
        """Start a transaction, or answer for one that is known: the transaction, and whether it was started now.

        Raise Problem: nothing was sent then, and nothing of the call is recorded.
        """
        malformed: MalformedJson | None = None
        try:
            request, faults = read_start(body)
        except MalformedJson as error:
            request, faults, malformed = StartRequest(), (Fault("", str(error)),), error
        known = await self._known(client_transaction_id)
        if known is not None:
            return _same(known, request, faults), False
        if malformed is not None:
            raise Problem("malformed_json", f"the body is not JSON ({malformed}); nothing was started")
        return await self._begin(client_transaction_id, request, faults)

    async def drain(self, seconds: float) -> None:
        """Start nothing any more; give calls under way some seconds, then stop waiting for their replies.

        A start whose reply is not waited for is judged like any other lost reply, and that is committed.
        """
        self._draining = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        self._fleet.hurry()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _known(self, client_transaction_id: str) -> Transaction | None:
        """Return the transaction of that id; one that is being started is waited for first."""
        await self._concluded(client_transaction_id)
        found = await self._look_up(client_transaction_id)
        if found is None or found.phase is not Phase.STARTING:
            return found
        # Another call has begun to start it since: this one joins that.
        await self._concluded(client_transaction_id)
        return await self._look_up(client_transaction_id)

    async def _concluded(self, client_transaction_id: str) -> None:
        """Wait for the call that is starting the transaction, if there is one."""
        running = self._running.get(client_transaction_id)
        if running is not None:
            await asyncio.wait({running})

    async def _look_up(self, client_transaction_id: str) -> Transaction | None:
        try:
            return await self._store.read(partial(transactions.get, client_transaction_id=client_transaction_id))
        except StorageUnavailable as error:
            # No 503 here: it would say that nothing was sent under this id, and that is not known.
            error_id = secrets.token_hex(8)
            log.warning("payment.not_readable", transaction=client_transaction_id, error=str(error), error_id=error_id)
            raise Problem(
                "internal_error",
                f"it cannot be looked up whether this id was started before: {error}; repeat the same call with the "
                "same id, and check the disk",
                error_id=error_id,
            ) from error

    async def _begin(
        self, client_transaction_id: str, request: StartRequest, faults: tuple[Fault, ...]
    ) -> tuple[Transaction, bool]:
        if faults:
            what = "; ".join(f"{fault.path or 'the body'} {fault.message}" for fault in faults)
            raise Problem("invalid_request", f"cannot start: {what}", errors=[_fields(fault) for fault in faults])
        for field, given in (("sale", request.sale), ("original", request.original)):
            if given is not None:
                raise Problem(
                    "not_configured", f"cannot start: `{field}` is not available in this version; leave it out"
                )
        if request.type is not OperationType.CHARGE:
            raise Problem("not_configured", f"cannot start: {request.type} is not available in this version")
        serial = self._fleet.resolve(request.terminal)
        address = self._fleet.base_url(serial)
        if address is None:
            raise Problem(
                "terminal_offline",
                f"cannot start: no address of terminal {serial} is known; check that it is switched on and in this "
                "network (posd terminals), or give it a base_url in the configuration",
            )
        if self._draining:
            raise Problem("draining", "posd is stopping; repeat the same call in a moment")
        at = iso(self._now())
        transaction = Transaction(
            client_transaction_id=client_transaction_id,
            terminal=serial,
            type=request.type,
            created_at=at,
            updated_at=at,
            phase=Phase.STARTING,
            sale=request.sale,
            amount=request.amount,
            metadata=request.metadata,
            options=request.options,
            transaction_reference=request.transaction_reference,
            original=request.original,
            repeat=request.repeat,
            sent_to=address[0],
        )
        url = await self._callback_urls.url(Channel.TRANSACTION, client_transaction_id, address[0])
        running = self._running.get(client_transaction_id)
        if running is None:
            started, created = await asyncio.shield(self._launch(transaction, url))
            return (started, True) if created else (_same(started, request, faults), False)
        # The same new id came twice at once: the first call starts it, this one joins it.
        started, _ = await asyncio.shield(running)
        return _same(started, request, faults), False

    def _launch(self, transaction: Transaction, callback_url: str) -> "asyncio.Future[Started]":
        answer: asyncio.Future[Started] = asyncio.get_running_loop().create_future()
        answer.add_done_callback(_retrieved)
        self._running[transaction.client_transaction_id] = answer
        task = asyncio.create_task(self._run(transaction, callback_url, answer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return answer

    async def _run(self, transaction: Transaction, callback_url: str, answer: "asyncio.Future[Started]") -> None:
        identity = transaction.client_transaction_id
        try:
            with self._outstanding.call(identity):
                attempt = await self._intend_and_send(transaction, start_body(transaction, callback_url))
            if isinstance(attempt, Transaction):
                answer.set_result((attempt, False))
            else:
                await self._conclude(transaction, attempt, answer)
        except Exception as error:  # noqa: BLE001 - whatever it was, it is the answer to the till's call
            if not answer.done():
                answer.set_exception(error)
        finally:
            self._running.pop(identity, None)

    async def _intend_and_send(self, transaction: Transaction, body: bytes) -> Attempt | Transaction:
        """Commit the intent and the lease, then send the request; a transaction that is there already is returned.

        Raise Problem where nothing was recorded.
        """
        try:
            existing = await self._store.write(partial(self._record_intent, transaction=transaction))
        except StorageUnavailable as error:
            raise _unavailable(error) from error
        except CommitUncertain as error:
            log.warning("payment.commit_uncertain", transaction=transaction.client_transaction_id, error=str(error))
            return NotSent("its intent could not be committed for certain, so it was not sent")
        if existing is not None:
            return existing
        row = self._profile.local[OperationType.CHARGE]
        log.info("payment.started", transaction=transaction.client_transaction_id, terminal=transaction.terminal)
        device = self._fleet.device(transaction.terminal)
        attempt = await device.call(row.method, f"{transaction.sent_to}{row.path}", body)
        self._fleet.reached(transaction.terminal, not isinstance(attempt, NotSent), iso(self._now()))
        return attempt

    def _record_intent(self, unit: Unit, transaction: Transaction) -> Transaction | None:
        existing = transactions.get(unit.db, transaction.client_transaction_id)
        if existing is not None:
            return existing
        holder = leases.holder(unit.db, transaction.terminal)
        blocking = transactions.get(unit.db, holder) if holder else None
        if blocking is not None and (
            blocking.phase is not Phase.FINAL or self._outstanding.of(blocking.client_transaction_id)
        ):
            raise Problem(
                "terminal_busy",
                f"cannot start: terminal {transaction.terminal} is still busy with {blocking.client_transaction_id} "
                f"({blocking.status or blocking.phase} since {blocking.updated_at}); wait for it, or abort it "
                f"(posd abort {blocking.client_transaction_id})",
                blocking_transaction=blocking.client_transaction_id,
            )
        transactions.insert(unit, transaction, "intent")
        leases.take(unit, transaction.terminal, transaction.client_transaction_id)
        return None

    async def _conclude(self, transaction: Transaction, attempt: Attempt, answer: "asyncio.Future[Started]") -> None:
        """Commit what the attempt proves. While the disk refuses, the till gets what is on disk, and it is retried."""
        identity = transaction.client_transaction_id
        while True:
            try:
                concluded = await self._store.write(
                    partial(self._record_attempt, identity=identity, attempt=attempt, now=self._now())
                )
            except (StorageUnavailable, CommitUncertain) as error:
                log.warning("payment.not_recorded", transaction=identity, error=str(error))
                if not answer.done():
                    answer.set_result((transaction, True))
                if self._draining:
                    return
                await asyncio.sleep(RETRY_STORING_SECONDS)
            else:
                break
        if concluded is None:
            raise _unavailable(StorageUnavailable("the commit failed"))
        judgement = judge(attempt, identity)
        log.info(
            "payment.answered",
            transaction=identity,
            terminal=transaction.terminal,
            judgement=NAMES[type(judgement)],
            phase=concluded.phase,
            reason=getattr(judgement, "reason", None),
            http_status=attempt.status if isinstance(attempt, Replied) else None,
        )
        if not answer.done():
            answer.set_result((concluded, True))

    def _record_attempt(self, unit: Unit, identity: str, attempt: Attempt, now: datetime) -> Transaction | None:
        """Record what the attempt proves; None where the intent had not come to disk."""
        before = transactions.get(unit.db, identity)
        if before is None:
            return None
        judgement = judge(attempt, identity)
        after = transactions.move(unit, before, conclude_start(before, judgement, now), NAMES[type(judgement)])
        if isinstance(attempt, Replied):
            transactions.keep_reply(unit, identity, attempt.status, attempt.body)
        if after.phase is Phase.FINAL and not self._outstanding.of(identity):
            leases.give_up(unit, identity)
        return after


def _same(known: Transaction, request: StartRequest, faults: tuple[Fault, ...]) -> Transaction:
    """Return the transaction where the repeated call asks for the same. Raise Problem id_reused."""
    fields = differing_fields(known, request, faults)
    if fields:
        raise Problem(
            "id_reused",
            f"{known.client_transaction_id} was already used for another request (different: {', '.join(fields)}); "
            "it stands as it is. Ask for it by GET, and choose a new id for a new payment",
            fields=fields,
        )
    return known


def _retrieved(answer: "asyncio.Future[Started]") -> None:
    """Mark an exception as seen: the till that asked may have hung up."""
    if not answer.cancelled():
        answer.exception()


def _unavailable(error: Exception) -> Problem:
    return Problem(
        "storage_unavailable",
        f"cannot do it now: {error}; nothing was sent and nothing recorded. Repeat the same call; "
        "if it stays so, check the disk",
    )


def _fields(fault: Fault) -> dict[str, str]:
    return {"path": fault.path, "message": fault.message}
