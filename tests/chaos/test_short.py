"""A short random run, and that the comparison sees what it is there to see. The long runs are a command."""

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.chaos.__main__ import run
from tests.chaos.baddays import bad_days
from tests.chaos.books import Books, Case
from tests.chaos.compare import compare
from tests.chaos.database_tampering import DATABASE_TAMPERINGS, tampered
from tests.chaos.faults import LONG, SWITCHES, UNSTEADY, Kind, steady_stretches
from tests.chaos.plan import make_plan
from tests.chaos.proxy import Fate
from tests.chaos.report import Report, words
from tests.chaos.tampering import TAMPERINGS, bad_day, copied, undisturbed

PAYMENTS, TERMINALS, TILLS = 36, 3, 3
SEED = 52
#: How much faster than people the terminals are.
SPEED = 40.0


@pytest.fixture(scope="module")
def made() -> Iterator[tuple[Report, Books]]:
    """The run, with its ledgers."""
    directory = Path(tempfile.mkdtemp(prefix="posd-chaos-"))
    plan = make_plan(SEED, PAYMENTS, TERMINALS, TILLS)
    command = f"python -m tests.chaos --payments {PAYMENTS} --terminals {TERMINALS} --tills {TILLS} --seed {SEED}"
    report, books = asyncio.run(run(plan, directory, SPEED, command))
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


def test_a_plan_plays_bad_days_that_do_not_mislead_the_tills_of_a_basket():
    plan = make_plan(SEED, 1000, 6, 6)
    assert len({payment.scenario for payment in plan.payments if payment.id in plan.days}) > len(bad_days()) / 2
    assert not [item for item in plan.payments if item.sale and item.id in plan.days and plan.days[item.id].misleads]


def test_a_long_plan_leaves_the_daemon_alone_in_the_steady_stretches():
    plan = make_plan(SEED, LONG, 6, 6)
    stretches = steady_stretches(LONG)
    unsteady = [fault.after for fault in plan.faults if fault.kind in UNSTEADY]
    assert len(stretches) == 2
    assert unsteady
    assert not [after for after in unsteady for begin, end in stretches if begin <= after < end]


def test_what_is_switched_off_is_left_out_of_a_plan_and_the_rest_stays():
    plan = make_plan(SEED, 400, 6, 6)
    assert plan.with_only(SWITCHES) == plan
    calm = plan.with_only({Kind.TILL})
    assert {fault.kind for fault in calm.faults} == {Kind.TILL}
    assert not calm.days
    assert [payment.id for payment in calm.payments] == [payment.id for payment in plan.payments]


def test_a_terminal_that_denies_what_it_does_is_played_only_where_search_and_abort_are_not_confirmed():
    for seed in (SEED, SEED + 1):
        plan = make_plan(seed, 2000, TERMINALS, TILLS)
        assert any(day.denies for day in plan.days.values()) != plan.confirmed


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_wrong(made):
    report, books = made
    assert report.good, f"{words(report)}\nledgers, logs and the database: {report.directory}"
    assert len({line["id"] for ledger in books.tills.values() for line in ledger}) == PAYMENTS


@pytest.mark.slow
def test_every_kind_of_fault_was_injected(made):
    report, _ = made
    met = Counter[str]()
    for fates in report.connections.values():
        met.update(fates)
    assert not [kind for kind in Kind if not report.injected[kind]], words(report)
    assert not [fate for fate in Fate if not met[fate]], words(report)
    for happened in ("payments charged", "events out of order", "events delivered again", "deliveries that failed"):
        assert report.figures[happened] > 0, words(report)


@pytest.mark.slow
@pytest.mark.parametrize(("tamper", "kind", "what"), TAMPERINGS)
def test_the_comparison_sees_it(made, tamper: Callable[[Books, Case], None], kind: str, what: str):
    books = copied(made[1])
    tamper(books, undisturbed(books))
    found = compare(books)
    assert [finding for finding in found if finding.kind == kind and what in finding.what], found


@pytest.mark.slow
@pytest.mark.parametrize(("statement", "kind", "what"), DATABASE_TAMPERINGS)
def test_the_comparison_sees_it_in_the_database(made, tmp_path: Path, statement: str, kind: str, what: str):
    books = made[1]
    database = tampered(books.database, tmp_path / "posd.db", statement, undisturbed(books).id)
    found = compare(replace(books, database=database))
    assert [finding for finding in found if finding.kind == kind and what in finding.what], found


@pytest.mark.slow
@pytest.mark.parametrize("traits", [{}, {"silent": True}, {"falsified": True}, {"two_ends": True}, {"misleads": True}])
def test_a_bad_day_alone_is_no_finding(made, traits: dict[str, bool]):
    books = copied(made[1])
    bad_day(books, undisturbed(books), **traits)
    assert compare(books) == []
