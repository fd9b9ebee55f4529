"""Any steps in any order, with crashes in between: what is recorded agrees with what really happened.

The machine plays the street: terminals that run payments or do not, a network that loses replies, people, and crashes
that leave what is on disk. `Payment` is the street's own ledger; after every step it is held against the database.
"""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    initialize,
    multiple,
    rule,
    run_state_machine_as_test,
)

from posd.payments.abort_reply import AbortAnswer, judge_abort
from posd.payments.entries import Dismissed, Released, Resolved
from posd.payments.lifecycle import FINALS
from posd.payments.model import AttentionCode, Result, may_be_paid
from posd.records.model import Phase
from posd.terminals.attempt import Attempt
from tests.core.scenarios import Path as Lifecycle
from tests.store.house import MERCHANT, SERIALS
from tests.store.ledger import (
    ABORTS,
    LIFECYCLES,
    NO_ANSWERS,
    NONE,
    REPLIES,
    Payment,
    listing,
)
from tests.store.street import Street
from tests.support.slow import examples

RUNS = st.sampled_from([True, True, False])
REPLY = st.sampled_from([*REPLIES, "held", "held"])
#: Orphans are of a restored database, and few; starts shall not drown in them.
MOST_ORPHANS = 2
#: The answers to an abort that a till hears as a refusal, by their names in `ABORTS`.
CERTAIN_REFUSALS = {
    "unreachable": "terminal_offline",
    "nothing running": "nothing_running",
    "not taken": "not_configured",
}
#: Answers to an abort that begin the proof anew.
AGAINST_PROOF = (AbortAnswer.TAKEN, AbortAnswer.UNKNOWN)


class Life(Street):
    """Every rule is one thing that can happen."""

    payments = Bundle("payments")

    # --- a till

    @initialize(target=payments, reply=REPLY, runs=RUNS, lifecycle=st.sampled_from(LIFECYCLES))
    def begin_with_a_start(self, reply: str, runs: bool, lifecycle: Lifecycle) -> Any:
        return self.start(SERIALS[0], None, False, lifecycle, reply, runs)

    @rule(
        target=payments,
        terminal=st.sampled_from(SERIALS),
        sale=st.sampled_from([None, "basket"]),
        repeat=st.sampled_from([False, False, True]),
        lifecycle=st.sampled_from(LIFECYCLES),
        reply=REPLY,
        runs=RUNS,
    )
    def start(self, terminal: str, sale: str | None, repeat: bool, lifecycle: Lifecycle, reply: str, runs: bool) -> Any:
        identity = f"00000000-0000-4000-8000-{len(self.ledger):012}"
        amount = {"iva": 1.20, "subtotal_iva": 10.00}
        request = json.dumps({"terminal": terminal, "amount": amount, "sale": sale, "repeat": repeat}).encode()
        runs = (runs or reply in ("acknowledged", "by another device")) and reply != "unsent"
        payment = Payment(identity, terminal, lifecycle, runs, request, sale, held=reply == "held")
        records = self.run(self.house.records())
        guarded = (
            sale is not None
            and not repeat
            and any(may_be_paid(item.row) for item in records.transactions.values() if item.row.sale == sale)
        )
        busy = terminal in records.leases
        _, refused = self.ask(self.begin(payment, reply))
        assert refused == ("sale_conflict" if guarded else "terminal_busy" if busy else None)
        if refused:
            assert self.network.starts[identity] == 0
            assert identity not in self.run(self.house.records()).transactions
            return multiple()
        self.ledger[identity] = payment
        if not payment.held:
            self.concluded(payment, reply)
        return payment

    @rule(payment=payments, reply=st.sampled_from([item for item in REPLIES if item != "unsent"]))
    def reply(self, payment: Payment, reply: str) -> None:
        if payment.held:
            self.end_call(payment, reply)

    @rule(payment=payments, same=st.booleans())
    def repeat_the_call(self, payment: Payment, same: bool) -> None:
        if payment.held or not payment.request:
            return
        before = self.run(self.house.dump())
        request = payment.request if same else payment.request.replace(b"10.0", b"11.0")
        known, refused = self.ask(self.house.payments.start(payment.identity, request))
        assert refused == (None if same else "id_reused")
        assert known is None or (known[0].client_transaction_id, known[1]) == (payment.identity, False)
        assert self.run(self.house.dump()) == before

    # --- terminals

    @rule(payment=payments, number=st.integers(0, 4))
    def deliver(self, payment: Payment, number: int) -> None:
        if payment.runs:
            self.receive(payment, payment.said(number))

    @rule(payment=payments)
    def deliver_the_final(self, payment: Payment) -> None:
        self.deliver(payment, -1)

    @rule(payment=payments, order=st.permutations(range(5)))
    def deliver_a_burst(self, payment: Payment, order: list[int]) -> None:
        for number in order:
            self.deliver(payment, number)

    @rule(payment=payments, number=st.integers(0, 4), used=st.integers(0, 4))
    def deliver_under_a_used_event_id(self, payment: Payment, number: int, used: int) -> None:
        if payment.runs and payment.said(used) in payment.events:
            self.receive(payment, payment.said(number, event_id=f"{payment.identity} {used % len(payment.lifecycle)}"))

    @rule(payment=payments, status=st.sampled_from(sorted(FINALS)))
    def deliver_another_final(self, payment: Payment, status: str) -> None:
        if payment.runs:
            response = {"transaction_reference": "r-2"} if status == "APPROVAL" else None
            changes = {"event_id": f"{payment.identity} other {status}", "status": status, "raw_response": response}
            self.receive(payment, payment.said(-1, **changes))

    @rule(
        target=payments,
        terminal=st.sampled_from(SERIALS),
        lifecycle=st.sampled_from(LIFECYCLES),
        number=st.integers(0, 4),
    )
    def deliver_for_a_payment_that_is_not_known(self, terminal: str, lifecycle: Lifecycle, number: int) -> Any:
        if sum(not payment.request for payment in self.ledger.values()) >= MOST_ORPHANS:
            return multiple()
        payment = Payment(f"00000000-0000-4000-8000-{len(self.ledger):012}", terminal, lifecycle, True, claim=False)
        self.ledger[payment.identity] = payment
        self.receive(payment, payment.said(number))
        return payment

    @rule(payment=payments, number=st.integers(0, 4), fault=st.sampled_from(["no json", "id", "serial", "merchant"]))
    def deliver_what_cannot_be_used(self, payment: Payment, number: int, fault: str) -> None:
        match fault:
            case "no json":
                self.receive(payment, payment.said(number)[:-1], 400)
            case "id":
                self.receive(payment, payment.said(number, client_transaction_id="another"), 400)
            case "serial":
                self.receive(payment, payment.said(number, terminal={"serial_number": "SN-X"}), 403)
            case _ if payment.runs:
                data = payment.said(number, merchant_id="M-2", event_id=f"{payment.identity} M-2 {number}")
                known = data in payment.events
                self.receive(payment, data, 200 if known else 403)
                if not known and data not in payment.kept:
                    payment.kept.append(data)

    @rule(payment=payments)
    def break_off(self, payment: Payment) -> None:
        """A callback begins, and its connection ends before its body is whole: it tells that a terminal has it."""
        doubtful = self.row(payment).phase in (Phase.STARTING, Phase.IN_DOUBT)
        self.run(self.house.inbox.broke_off(payment.identity))
        payment.heard |= doubtful

    # --- posd by itself, and asked to

    @rule(
        payment=payments,
        answer=st.sampled_from([*NO_ANSWERS, "unusable", "foreign", "found", "found", "found all"]),
        number=st.integers(0, 4),
        abort=st.sampled_from(sorted(ABORTS)),
    )
    def reconcile(self, payment: Payment, answer: str, number: int, abort: str) -> None:
        if answer.startswith("found") and not payment.runs:
            answer = "none"
        everything = range(len(payment.lifecycle)) if answer == "found all" else (number,)
        elements = [payment.said(at) for at in everything] if answer.startswith("found") else []
        if answer == "unusable":
            elements = [json.dumps({"client_transaction_id": payment.identity}).encode()]
        if answer == "foreign":
            elements = [payment.said(number, merchant_id="M-2")]
        self.network.search = self.answering(payment, NO_ANSWERS.get(answer) or listing(*elements))
        self.network.abort = ABORTS[abort]
        aborts, final = self.network.aborts, self.row(payment).phase is Phase.FINAL
        self.run(self.house.reconciler.reconcile(payment.identity))
        if elements:
            payment.begin_proof_anew()
            payment.heard |= answer != "unusable" or not final  # what cannot be read takes back no conclusion
        if answer.startswith("found"):
            self.found.add((payment.terminal, payment.identity))
            for element in elements:
                payment.tell(json.loads(element))
        self.aborted(payment, self.network.aborts - aborts)

    @rule(payment=payments)
    def ask_until_it_is_proved(self, payment: Payment) -> None:
        for _ in range(2):
            self.reconcile(payment, "none", 0, "nothing running")

    def answering(self, payment: Payment, reply: Attempt) -> Callable[[str], Attempt]:
        """Answer so for a payment, and for others, on which a search is tried, what is so."""

        def search(identity: str) -> Attempt:
            if identity == payment.identity:
                payment.nones += reply is NONE
                return reply
            other = self.ledger[identity]
            self.found.add((other.terminal, identity))
            return listing(other.said(-1))

        return search

    def aborted(self, payment: Payment, sent: int) -> None:
        answer = judge_abort(self.network.abort)
        if sent and answer in AGAINST_PROOF:
            payment.begin_proof_anew()
            payment.heard |= answer is AbortAnswer.TAKEN  # something ran there
        payment.idles += sent * (answer is AbortAnswer.NOTHING_RUNNING)

    @rule(payment=payments, abort=st.sampled_from(sorted(ABORTS)))
    def abort(self, payment: Payment, abort: str) -> None:
        allowed = payment.claim and self.row(payment).abortable
        self.network.abort, before = ABORTS[abort], self.network.aborts
        _, refused = self.ask(self.house.aborts.abort(payment.identity, None))
        if allowed:
            assert not payment.asked, "the acquirer was asked: only the final can tell"
            assert not payment.mismatch, "another device has it"
            assert refused == CERTAIN_REFUSALS.get(abort)
        else:
            assert refused in ("already_final", "past_point_of_no_return", "not_abortable")
        assert self.network.aborts - before == allowed
        self.aborted(payment, int(allowed))

    @rule()
    def reprocess(self) -> None:
        before = self.run(self.house.dump())
        report = self.run(self.house.reprocess(MERCHANT))
        assert (report.applied, report.differences, report.transactions) == ([], [], len(self.ledger))
        assert self.run(self.house.dump()) == before

    @rule()
    def reprocess_with_the_configuration_mended(self) -> None:
        report = self.run(self.house.reprocess(""))
        assert report.differences == []
        assert len(report.applied) == sum(len(payment.kept) for payment in self.ledger.values())
        for payment in self.ledger.values():
            for data in payment.kept:
                payment.take(data)
            payment.kept.clear()

    # --- people

    @rule(payment=payments)
    def release(self, payment: Payment) -> None:
        if self.decide(payment, Released("Ana", "note", 0)):
            payment.claim = False

    @rule(payment=payments, result=st.sampled_from(Result))
    def resolve(self, payment: Payment, result: Result) -> None:
        self.decide(payment, Resolved("Ana", "note", 0, result))

    def decide(self, payment: Payment, decision: Released | Resolved) -> bool:
        final = self.row(payment).phase is Phase.FINAL
        _, refused = self.ask(self.house.operators.decide(payment.identity, decision))
        assert refused == ("already_final" if final else "call_outstanding" if payment.held else None)
        return refused is None

    @rule(payment=payments, chance=st.integers(0, 5))
    def acknowledge(self, payment: Payment, chance: int) -> None:
        codes = sorted(item.code for item in self.row(payment).attention)
        if codes:
            code = AttentionCode(codes[chance % len(codes)])
            self.run(self.house.operators.decide(payment.identity, Dismissed("Ana", "note", 0, code)))


def test_the_database_always_agrees_with_what_really_happened() -> None:
    run_state_machine_as_test(
        Life,
        settings=settings(
            max_examples=examples(5, 50),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_the_street_gets_as_far_as_a_proof() -> None:
    """The rarest end, by hand: what holds there is held against something."""
    life = Life()
    try:
        other = life.start(SERIALS[0], None, False, LIFECYCLES[1], "acknowledged", True)
        for number in range(len(other.lifecycle)):
            life.deliver(other, number)
        payment = life.start(SERIALS[0], None, False, LIFECYCLES[0], "lost", False)
        life.ask_until_it_is_proved(payment)
        outcome = life.row(payment).outcome
        assert outcome is not None
        assert (outcome.result, {item.kind for item in outcome.evidence}) == ("not_started", {"abort", "search"})
        life.the_database_agrees_with_the_ledger()
    finally:
        life.teardown()
