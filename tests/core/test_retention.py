"""The records that retention may remove, and the later replies about them."""

from datetime import timedelta
from itertools import product

import msgspec
import pytest

from posd.base.operations import OperationType
from posd.base.times import iso
from posd.payments.lifecycle import Status
from posd.payments.model import RESULTS, AttentionCode, Result, Transaction, attend
from posd.payments.outcomes import contradicts
from posd.printing.model import PrintJob
from posd.records.model import Phase, Pruned, PrunedJob
from posd.upkeep.retention_rules import RetentionReason, guards_sale, keeps, keeps_together
from tests.core.scenarios import NOW
from tests.core.test_chains import STATES, in_state
from tests.rig.tables import every

LATER = iso(NOW + timedelta(days=400))
ENDED = ("approved", "approved by a person", "declined", "rejected", "canceled", "not_started")


def made(state: str, number: int = 1, **fields: object) -> Transaction:
    """Return an ended transaction that needs no operator."""
    return msgspec.structs.replace(in_state(OperationType.CHARGE, state, number), attention=(), **fields)


@pytest.mark.parametrize("state", STATES)
def test_an_ended_payment_is_removed_and_an_open_payment_stays(state: str) -> None:
    assert keeps(made(state), LATER) is (None if state in ENDED else RetentionReason.OPEN)


def test_a_payment_that_needs_an_operator_stays() -> None:
    item = attend(made("declined"), AttentionCode.GAP, NOW, "a gap")
    assert keeps(item, LATER) is RetentionReason.ATTENTION


def test_a_recently_changed_payment_stays() -> None:
    item = made("declined", updated_at=LATER)
    assert keeps(item, LATER) is RetentionReason.RECENT
    assert keeps(item, iso(NOW + timedelta(days=401))) is None


@pytest.mark.parametrize(("phase", "kept"), [(Phase.FINAL, None), (Phase.ACTIVE, RetentionReason.OPEN)])
def test_print_jobs_are_kept_by_the_same_rules_as_payments(phase: Phase, kept: RetentionReason | None) -> None:
    job = PrintJob(print_job_id="p", terminal="SN-1", created_at=iso(NOW), updated_at=iso(NOW), phase=phase)
    assert keeps(job, LATER) is kept


@pytest.mark.parametrize(
    ("states", "kept"),
    [
        (("approved",), None),
        (("open",), RetentionReason.OPEN),
        (("approved", "declined"), None),
        (("approved", "open"), RetentionReason.CHAIN),
        (("open", "in_doubt"), RetentionReason.CHAIN),
    ],
)
def test_a_chain_is_removed_completely_or_not_at_all(states: tuple[str, ...], kept: RetentionReason | None) -> None:
    assert keeps_together([made(state, number) for number, state in enumerate(states)], LATER) is kept


@every(("mine", "theirs"), list(product(ENDED, STATES)))
def test_a_paid_sale_stays_paid(mine: str, theirs: str) -> None:
    """If retention removed only the approved payment of a sale, the sale would seem unpaid."""
    item = made(mine, sale="s")
    other = made(theirs, 2, sale="s", updated_at=LATER)
    paid, claims = mine.startswith("approved"), theirs.startswith(("approved", "open", "in_doubt"))
    assert guards_sale(item, [other], LATER) is (paid and not claims)


@pytest.mark.parametrize("others", [[], [made("declined", 2, sale="s")]])
def test_a_sale_without_kept_payments_is_removed(others: list[Transaction]) -> None:
    assert not guards_sale(made("approved", sale="s"), others, LATER)


def test_a_payment_without_a_sale_protects_no_other_payment() -> None:
    assert not guards_sale(made("approved"), [made("declined", 2, updated_at=LATER)], LATER)


@every(("result", "status"), list(product(Result, [*Status, "SOMETHING_NEW"])))
def test_only_a_different_end_is_a_contradiction(result: Result, status: str) -> None:
    left = Pruned("id", "SN-1", "charge", result, "2026-11-20")
    stated = {str(final): said for final, said in RESULTS.items()}.get(status)
    assert contradicts(left, status) is (stated not in (None, result))


@pytest.mark.parametrize("result", Result)
@pytest.mark.parametrize("kind", ["charge", None])
def test_the_reply_about_a_removed_payment_cannot_be_mistaken_for_not_charged(result: Result, kind: str | None) -> None:
    problem = Pruned("id", "SN-1" if kind else "", kind, result, "2026-11-20").refusal()
    assert (problem.code, problem.status, problem.extra["result"]) == ("pruned", 410, result)
    document = problem.document()
    assert (document["type"], document["transaction_type"]) == ("urn:posd:problem:pruned", kind)
    assert (document["terminal"], document["ended_on"]) == ("SN-1" if kind else "", "2026-11-20")
    what = "a charge on terminal SN-1" if kind else "a payment on terminal unknown"
    assert f"{what} that ended {result} on 2026-11-20" in problem.detail
    assert ("do not charge again" in problem.detail) is (result is Result.APPROVED)
    assert ("was not charged" in problem.detail) is (result is not Result.APPROVED)


@pytest.mark.parametrize(("status", "words"), [("COMPLETED", "ended COMPLETED"), (None, "without being accepted")])
def test_a_removed_print_job_still_has_its_result(status: str | None, words: str) -> None:
    problem = PrunedJob("p", "SN-1", status, "2026-11-20").refusal()
    assert problem.code == "pruned"
    assert problem.extra == {"print_status": status, "terminal": "SN-1", "ended_on": "2026-11-20"}
    assert words in problem.detail
