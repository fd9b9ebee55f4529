"""A till's own type checker finds code that ignores an outcome."""

import subprocess
import sys
from pathlib import Path

import pytest

CASES = ("Approved", "Declined", "Rejected", "Canceled", "NotStarted")

HEAD = """
import asyncio
from collections.abc import Iterator
from decimal import Decimal
from typing import assert_never
from uuid import UUID, uuid4

from posd.client import (
    Approved, AsyncPosd, Canceled, Change, Declined, FeedChange, NotStarted, Outcome, Paid, Payment, Posd, PrintJob,
    PosdError, Problem, Rejected, Reserved, Reversed, State, StillOpen, StoredPayment, Transaction,
)


def tell(outcome: Outcome) -> str:
    match outcome:
"""

TAIL = """
        case _:
            assert_never(outcome)


def book(outcome: Outcome[Paid]) -> None:
    match outcome.paid:
        case Paid.PAID:
            print("paid")
        case Paid.NOT_PAID:
            print("not paid")
        case Paid.UNCLEAR:
            print("call the supervisor")
        case _:
            assert_never(outcome.paid)


def book_any(outcome: Outcome) -> None:
    match outcome.effect:
        case Paid.PAID:
            print("income")
        case Reversed.REVERSED:
            print("given back or released")
        case Reserved.RESERVED:
            print("no income yet")
        case Paid.NOT_PAID | Reserved.NOT_RESERVED | Reversed.NOT_REVERSED:
            print("nothing")
        case Paid.UNCLEAR | Reserved.UNCLEAR | Reversed.UNCLEAR:
            print("call the supervisor")
        case _:
            assert_never(outcome.effect)


def each(posd: Posd, id: UUID, stored: StoredPayment) -> None:
    for paid in (posd.charge(id, 1), posd.capture(id, 1, original=id), posd.post_tip(id, 1, original=id)):
        book(paid.outcome())
    reserved: Reserved = posd.pre_auth(id, 1).outcome().reserved
    again: Outcome[Reserved] = posd.re_auth(id, 1, original=id).outcome()
    back: Payment[Reversed] = posd.void(id, original=id)
    reversed: Reversed = posd.refund(id, original=id).outcome().reversed
    print(reserved, again.reserved, back.outcome().reversed, reversed)
    for one in (posd.start(stored), posd.transaction(stored), back):
        book_any(one.outcome())


def sync(id: UUID) -> None:
    with Posd(patience=5) as posd:
        try:
            payment: Payment[Paid] = posd.charge(id, {"iva": Decimal("1.20"), "extra_taxes": {"ice": "1"}})
        except PosdError as error:
            if isinstance(error, Problem) and error.code == "terminal_busy":
                raise SystemExit(error.extra["blocking_transaction"]) from error
            raise SystemExit(str(error) if error.never_started else error.next_step) from error
        for change in payment.watch():
            if isinstance(change, Change):
                number: int = change.seq
                print(number, change.event["status"])
            elif isinstance(change, State):
                print(change.display.text)
        try:
            outcome: Outcome[Paid] = payment.outcome(timeout=30)
        except StillOpen as still:
            state: Transaction | None = still.state
            print(state)
        else:
            book(outcome)
            print(tell(outcome), payment.abort().phase)
        rows: Iterator[Transaction] = posd.transactions(open=True, metadata={"till": 3})
        job: PrintJob = posd.print_job("receipt-1", {"text": "..."}).outcome()
        print(next(rows), job.printed)


async def asynchronous() -> None:
    async with AsyncPosd("/run/posd/till.sock") as posd:
        payment = await posd.charge(str(uuid4()), 5, sale="s")
        outcome: Outcome[Paid] = await payment.outcome()
        given_back: Reversed = (await (await posd.refund(uuid4(), original=uuid4())).outcome()).reversed
        print(given_back)
        state: Transaction = await payment.abort()
        async for change in payment.watch():
            if not isinstance(change, State):
                print(change.status, state.next_step, tell(outcome))
        async for line in posd.feed(after=1):
            found: FeedChange = line
            print(found.seq)


asyncio.run(asynchronous())
"""


def checked(tmp_path: Path, *cases: str, tail: str = TAIL) -> subprocess.CompletedProcess[str]:
    source = tmp_path / "till.py"
    source.write_text(HEAD + "\n".join(f"        case {case}():\n            return {case!r}" for case in cases) + tail)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path.parent / "cache"), str(source)]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_the_type_checker_accepts_code_that_handles_every_outcome(tmp_path: Path) -> None:
    done = checked(tmp_path, *CASES)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_type_checker_names_an_outcome_that_the_code_ignores(tmp_path: Path) -> None:
    unclear = '        case Paid.UNCLEAR:\n            print("call the supervisor")\n'
    done = checked(tmp_path, *(case for case in CASES if case != "Rejected"), tail=TAIL.replace(unclear, ""))
    first, second = [line for line in done.stdout.splitlines() if "error:" in line]
    assert '"Rejected[Paid | Reserved | Reversed]"; expected "Never"' in first
    assert '"Literal[Paid.UNCLEAR]"; expected "Never"' in second


#: A wrong line of a till -> error of the type checker.
WRONG = {
    "Posd().void(ID, original=ID).outcome().paid": "Approved[Reversed]",
    "Posd().refund(ID, original=ID).outcome().paid": "Approved[Reversed]",
    "Posd().refund(ID, original=ID).outcome().reserved": "Approved[Reversed]",
    "Posd().pre_auth(ID, 1).outcome().paid": "Approved[Reserved]",
    "Posd().re_auth(ID, 1, original=ID).outcome().paid": "Approved[Reserved]",
    "Posd().charge(ID, 1).outcome().reversed": "Approved[Paid]",
    "Posd().capture(ID, 1, original=ID).outcome().reserved": "Approved[Paid]",
    "Posd().post_tip(ID, 1, original=ID).outcome().reversed": "Approved[Paid]",
    "Posd().transaction(ID).outcome().paid": "Approved[Paid | Reserved | Reversed]",
    'Posd().start(StoredPayment("x", None)).outcome().paid': "Approved[Paid | Reserved | Reversed]",
    "next(Posd().transactions()).outcome.paid  # type: ignore[union-attr]": "Approved[Paid | Reserved | Reversed]",
    "book(Posd().void(ID, original=ID).outcome())": 'to "book" has incompatible type "Approved[Reversed]',
    "book(Posd().transaction(ID).outcome())": 'to "book" has incompatible type "Approved[Paid | Reserved | Reversed]',
    "later: Payment[Paid] = Posd().pre_auth(ID, 1)": 'expression has type "Payment[Reserved]"',
    "Posd().charge(ID, 1.5)": 'incompatible type "float"',
    'Posd().charge(ID, 1, sales="x")': 'Unexpected keyword argument "sales"',
    "Posd().charge(ID, 1, original=ID)": 'Unexpected keyword argument "original"',
    'Posd().transactions(sold="x")': 'Unexpected keyword argument "sold"',
    "Posd().void(ID, sale=3)": 'Argument "sale" to "void" of "Operations" has incompatible type "int"',
}


@pytest.mark.slow
def test_the_type_checker_finds_wrong_lines_and_refunds_booked_as_paid(tmp_path: Path) -> None:
    done = checked(tmp_path, *CASES, tail=TAIL + "\nID = uuid4()\n" + "\n".join(WRONG))
    first = (tmp_path / "till.py").read_text().count("\n") - len(WRONG) + 2
    said = [line for line in done.stdout.splitlines() if "error:" in line]
    for number, (line, words) in enumerate(WRONG.items(), first):
        assert any(words in error for error in said if f"till.py:{number}:" in error), line
    assert {int(error.split(":")[1]) for error in said} == set(range(first, first + len(WRONG)))
