"""A short random run, and falsified records whose faults the comparison finds. Long runs are a command."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.__main__ import Report, run
from tests.chaos.books import Books, Case
from tests.chaos.compare import compare
from tests.chaos.database_tampering import DATABASE_TAMPERINGS, tampered
from tests.chaos.faults import Kind
from tests.chaos.plan import make_plan
from tests.chaos.tampering import TAMPERINGS, copied, undisturbed

PAYMENTS, TERMINALS, TILLS = 36, 3, 3
SEED = 52
#: Factor by which terminals are faster than people.
SPEED = 40.0


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Report, Books]]:
    """The run, with its ledgers."""
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-"))
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    report, books = asyncio.run(run(plan, directory, SPEED))
    yield report, books
    if report.good:
        shutil.rmtree(directory)


def test_a_seed_gives_the_same_plan():
    assert make_plan(7, 200, 6, 5) == make_plan(7, 200, 6, 5)
    assert make_plan(7, 200, 6, 5) != make_plan(8, 200, 6, 5)


def test_a_plan_has_every_kind_of_fault_and_exactly_the_payments():
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    assert {fault.kind for fault in plan.faults} == set(Kind)
    assert len({payment.id for payment in plan.payments}) == PAYMENTS
    for sale in {payment.sale for payment in plan.payments if payment.sale}:
        pair = [payment for payment in plan.payments if payment.sale == sale]
        assert pair[0].till != pair[1].till
        assert pair[0].terminal != pair[1].terminal


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_wrong(made):
    report, books = made
    assert report.good, f"{report}\nledgers, logs and the database: {report.directory}"
    assert len({line["id"] for ledger in books.tills.values() for line in ledger}) == PAYMENTS


@pytest.mark.slow
def test_every_kind_of_fault_was_injected(made):
    report, _ = made
    assert not [kind for kind in Kind if not report.injected[kind]], report


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "kind", "what"), TAMPERINGS)
def test_the_comparison_finds_each_falsification(made, tamper: Callable[[Books, Case], None], kind: str, what: str):
    books = copied(made[1])
    tamper(books, undisturbed(books))
    found = compare(books)
    assert [finding for finding in found if finding.kind == kind and what in finding.what], found


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "kind", "what"), DATABASE_TAMPERINGS)
def test_the_comparison_finds_each_falsification_of_the_database(
    made, tmp_path: Path, statement: str, kind: str, what: str
):
    books = made[1]
    database = tampered(books.database, tmp_path / "posd.db", statement, undisturbed(books).id)
    found = compare(replace(books, database=database))
    assert [finding for finding in found if finding.kind == kind and what in finding.what], found
