"""What a till's own type checker says: a till that forgets an outcome is told so before it runs."""

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
    Problem, Rejected, State, StillOpen, TerminalBusy, Transaction, Unreachable,
)
from posd.client.commands import Cut, Text, document


def tell(outcome: Outcome) -> str:
    match outcome:
"""

TAIL = """
        case _:
            assert_never(outcome)


def book(outcome: Outcome) -> None:
    match outcome.paid:
        case Paid.PAID:
            print("paid")
        case Paid.NOT_PAID:
            print("not paid")
        case Paid.UNCLEAR:
            print("call the supervisor")
        case _:
            assert_never(outcome.paid)


def sync(id: UUID) -> None:
    with Posd(patience=5) as posd:
        try:
            payment: Payment = posd.charge(id, {"iva": Decimal("1.20"), "extra_taxes": {"ice": "1"}})
        except TerminalBusy as busy:
            raise SystemExit(busy.extra["blocking_transaction"]) from busy
        except (Problem, Unreachable) as error:
            raise SystemExit(str(error)) from error
        for change in payment.watch():
            if isinstance(change, Change):
                number: int = change.seq
                print(number, change.event["status"])
            elif isinstance(change, State):
                print(change.display.text)
        try:
            outcome: Outcome = payment.outcome(timeout=30)
        except StillOpen as still:
            state: Transaction | None = still.state
            print(state)
        else:
            book(outcome)
            print(tell(outcome), payment.abort().phase)
        rows: Iterator[Transaction] = posd.transactions(open=True, metadata={"till": 3})
        job: PrintJob = posd.print_job("receipt-1", document(Text("...", align="CENTER"), Cut())).outcome()
        print(next(rows), job.printed)


async def asynchronous() -> None:
    async with AsyncPosd("/run/posd/till.sock") as posd:
        payment = await posd.charge(str(uuid4()), 5, sale="s")
        outcome: Outcome = await payment.outcome()
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
def test_a_till_that_looks_at_every_outcome_is_right(tmp_path: Path) -> None:
    done = checked(tmp_path, *CASES)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("forgotten", CASES)
def test_a_till_that_forgets_one_is_told_which(tmp_path: Path, forgotten: str) -> None:
    done = checked(tmp_path, *(case for case in CASES if case != forgotten))
    assert done.returncode == 1
    [error] = [line for line in done.stdout.splitlines() if "error:" in line]
    assert f'"{forgotten}"; expected "Never"' in error or f'"{forgotten}"; expected "NoReturn"' in error


@pytest.mark.slow
def test_a_till_that_forgets_that_it_can_be_unclear_is_told(tmp_path: Path) -> None:
    unclear = '        case Paid.UNCLEAR:\n            print("call the supervisor")\n'
    done = checked(tmp_path, *CASES, tail=TAIL.replace(unclear, ""))
    [error] = [line for line in done.stdout.splitlines() if "error:" in line]
    assert '"Literal[Paid.UNCLEAR]"; expected "Never"' in error


@pytest.mark.slow
def test_a_float_is_no_amount_and_an_outcome_that_is_not_awaited_is_seen(tmp_path: Path) -> None:
    wrong = TAIL + '\nPosd().charge(uuid4(), 1.5)\nPosd().charge(uuid4(), 1, sales="x")\n'
    wrong += (
        'Posd().charge(uuid4(), 1, original=uuid4())\nPosd().transactions(sold="x")\nPosd().void(uuid4(), sale=3)\n'
    )
    done = checked(tmp_path, *CASES, tail=wrong)
    assert 'incompatible type "float"' in done.stdout
    for keyword in ("sales", "original", "sold"):
        assert f'Unexpected keyword argument "{keyword}"' in done.stdout
    assert 'Argument "sale" to "void" of "Starts" has incompatible type "int"' in done.stdout
