"""The street: one daemon's database, and after every step what has to hold between it and what really happened."""

import asyncio
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from structlog.testing import capture_logs

from posd.base.problems import Problem
from posd.payments.model import EvidenceKind, Outcome, Result, Transaction
from posd.records.model import Phase
from tests.core.test_every_order import RANK
from tests.store.house import Clock, House, Network, Records
from tests.store.ledger import Payment, attempt, check_feed, check_leases, check_replay

T = TypeVar("T")


class Street(RuleBasedStateMachine):
    """Starts and calls, crashes and restarts, and the checks; what else can happen are the rules of a subclass."""

    def __init__(self) -> None:
        super().__init__()
        self.home = tempfile.TemporaryDirectory(prefix="posd-")
        self.runner = asyncio.Runner()
        self.logs = capture_logs()
        self.lines = self.logs.__enter__()
        self.network, self.clock = Network(), Clock()
        self.ledger: dict[str, Payment] = {}
        self.calls: dict[str, asyncio.Task[Any]] = {}
        self.found: set[tuple[str, str]] = set()
        self.ranks: dict[str, int] = {}
        self.outcomes: dict[str, Outcome | None] = {}
        self.lives = 0
        self.feed_before = 0
        self.sound = True
        self.house = self.run(House.open(self.place(), self.network, self.clock))

    def place(self) -> Path:
        self.lives += 1
        place = Path(self.home.name) / str(self.lives)
        place.mkdir()
        return place

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(work)

    def ask(self, work: Coroutine[Any, Any, T]) -> tuple[T | None, str | None]:
        """Return what a call brings, or the code of the problem with which it is refused."""
        try:
            return self.run(work), None
        except Problem as problem:
            return None, problem.code

    def row(self, payment: Payment) -> Transaction:
        return self.run(self.house.records()).transactions[payment.identity].row

    async def begin(self, payment: Payment, reply: str) -> None:
        """Call as a till does, until the answer is there, or the request where its reply is held back."""
        self.network.hold = payment.held
        self.network.start = attempt(payment, reply)
        self.network.arrived.clear()
        call = asyncio.create_task(self.house.payments.start(payment.identity, payment.request))
        arrived = asyncio.create_task(self.network.arrived.wait())
        await asyncio.wait({call, arrived} if payment.held else {call}, return_when=asyncio.FIRST_COMPLETED)
        arrived.cancel()
        if call.done():
            call.result()
        else:
            self.calls[payment.identity] = call

    def end_call(self, payment: Payment, reply: str) -> None:
        """Let the reply to a start come that was held back."""
        self.network.reply(payment.identity, attempt(payment, reply))
        payment.held = False
        self.run(asyncio.wait_for(self.calls.pop(payment.identity), 30))
        self.concluded(payment, reply)

    def concluded(self, payment: Payment, reply: str) -> None:
        """Note what the reply to a start told."""
        if reply in ("acknowledged", "by another device"):
            payment.heard = True
        payment.mismatch |= reply == "by another device"

    def receive(self, payment: Payment, data: bytes, status: int = 200) -> None:
        """Let a callback come; `status` is the answer that it has to get."""
        known = data in payment.events
        before = self.run(self.house.dump()) if known else None
        assert self.run(self.house.inbox.receive(payment.identity, data, "peer")).result.status == status
        if known:
            assert self.run(self.house.dump()) == before, "an exact repeat changes nothing"
        elif status == 200:
            payment.take(data)
        else:
            payment.heard = True

    # --- the machine

    @rule()
    def crash(self) -> None:
        place = self.place()
        self.house.leave_to(place)
        self.run(self.house.die())
        self.begin_again(place)

    @rule()
    def restart(self) -> None:
        place = self.house.home
        self.run(self.house.close())
        self.begin_again(place)

    def begin_again(self, place: Path) -> None:
        self.feed_before += len(self.house.heard)
        self.calls.clear()
        for payment in self.ledger.values():
            payment.held = False
            payment.begin_proof_anew()
        self.house = self.run(House.open(place, self.network, self.clock))

    # --- what has to hold after every step

    @invariant()
    def the_database_agrees_with_the_ledger(self) -> None:
        self.sound = False
        records = self.run(self.house.records())
        assert set(records.transactions) == set(self.ledger)
        for identity, payment in self.ledger.items():
            record = records.transactions[identity]
            row, outcome = record.row, record.row.outcome
            assert self.network.starts[identity] == (1 if payment.request else 0), "a start is sent once"
            assert (row.phase is Phase.FINAL) == (outcome is not None)
            assert row.heard == payment.heard
            assert [item.body for item in record.events] == payment.events, "all that got a 200 is there, in order"
            if payment.finals:
                assert outcome is not None
                assert f"{outcome.status} {outcome.transaction_reference}" == payment.finals[0]
            elif outcome is not None:
                assert outcome.status is None
                assert outcome.by_operator or (outcome.result is Result.NOT_STARTED and not payment.heard)
            self.check_proof(payment, outcome)
            assert row.phase is not Phase.STARTING or payment.held, "a start without a caller that waits is in doubt"
            assert RANK[row.status] >= self.ranks.get(identity, 0), "a state never goes back"
            self.ranks[identity] = RANK[row.status]
        self.follow_claims(records)
        self.outcomes = {identity: record.row.outcome for identity, record in records.transactions.items()}
        check_leases(records, self.ledger)
        check_replay(records)
        check_feed(records, self.house.heard, since=self.feed_before)
        assert not [line for line in self.lines if line["event"] == "posd.internal_error"], self.lines
        self.sound = True

    def check_proof(self, payment: Payment, outcome: Outcome | None) -> None:
        """Hold a proof that was concluded in this step against all of its conditions."""
        kinds = [item.kind for item in outcome.evidence] if outcome and not outcome.status else []
        if outcome != self.outcomes.get(payment.identity) and EvidenceKind.ABORT in kinds:
            assert sorted(kinds) == ["abort", "abort", "search", "search"]
            assert min(payment.nones, payment.idles) >= 2
            assert any(terminal == payment.terminal and other != payment.identity for terminal, other in self.found)

    def follow_claims(self, records: Records) -> None:
        """A terminal is held by what was started last on it, until that is final and its call is over, or released.

        What is reopened because it turned out to run holds its terminal again, unless another has it by now.
        """
        for identity, payment in self.ledger.items():
            if records.transactions[identity].row.phase is Phase.FINAL and not payment.held:
                payment.claim = False
        for identity, payment in self.ledger.items():
            before, row = self.outcomes.get(identity), records.transactions[identity].row
            reopened = before is not None and row.outcome is None and not row.released and not row.orphan
            if reopened and not any(
                other.claim for other in self.ledger.values() if other.terminal == payment.terminal
            ):
                payment.claim = True

    def settle(self) -> None:
        """Let everything come: then every payment that ran has ended as it really did."""
        for payment in list(self.ledger.values()):
            if payment.held:
                self.end_call(payment, "lost")
            for number in range(len(payment.lifecycle)) if payment.runs else ():
                self.receive(payment, payment.said(number))
            self.the_database_agrees_with_the_ledger()
        for payment in self.ledger.values():
            assert bool(payment.finals) == payment.runs

    def teardown(self) -> None:
        """End, where nothing was wrong so far, with everything that was lost on the way."""
        try:
            if self.sound:
                self.settle()
        finally:
            self.run(self.house.close())
            self.runner.close()
            self.logs.__exit__(None, None, None)
            self.home.cleanup()
