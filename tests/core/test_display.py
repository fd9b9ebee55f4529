"""Texts for the cashier. Every state has a text, and no text can cause a second charge."""

from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from itertools import combinations, product
from pathlib import Path

import msgspec

from posd.base.operations import OperationType
from posd.base.text import Language, Text
from posd.base.times import iso
from posd.payments.display import ACTIVE, TEXTS, Display, DisplayCode, approval, display, text, written
from posd.payments.lifecycle import Status, Trail
from posd.payments.model import Attention, AttentionCode, NextStep, Outcome, Result, Transaction, next_step
from posd.payments.outcomes import inferred
from posd.records.model import Phase
from tests.core.scenarios import IDENTITY, NOW
from tests.rig.tables import every

GRACE = timedelta(seconds=10)
#: Limit of characters, for one or two lines of a till display. LONGEST: limit for the text that calls a supervisor.
SHORT, LONGEST = 60, 80
#: Displays that tell the cashier not to charge again.
NEVER_AGAIN = {Language.EN: "Do not charge again", Language.ES: "No cobre otra vez"}
#: None stands for an orphan whose events do not give the type.
KINDS = (*OperationType, None)
#: A type of each kind of approval.
SOME_KINDS = (None, OperationType.CHARGE, OperationType.PRE_AUTH, OperationType.VOID)
APPROVED = {DisplayCode.PAID, DisplayCode.RESERVED, DisplayCode.REVERSED}

#: Attentions that change the next step.
CODES = (
    AttentionCode.IN_DOUBT,
    AttentionCode.EVENT_ID_REUSED,
    AttentionCode.CONFLICTING_FINAL,
    AttentionCode.OUTCOME_CORRECTED,
    AttentionCode.ILLEGAL_TRANSITION,
)
ATTENTION = [
    tuple(Attention(code, iso(NOW), "") for code in codes)
    for codes in ((), *combinations(CODES, 1), *combinations(CODES, 2))
]


def ended(result: Result, reached_acquirer: bool | None = None, authorized: str | None = None) -> Outcome:
    outcome = inferred(result, (), NOW)
    return msgspec.structs.replace(
        outcome, reached_acquirer=reached_acquirer, authorized_amount=Decimal(authorized) if authorized else None
    )


def every_transaction() -> Iterator[Transaction]:
    """Yield transactions with every phase, status, result and attention. Impossible combinations are included."""
    outcomes = [ended(result, reached) for result, reached in product(Result, (None, False, True))]
    ends = [
        *((phase, None) for phase in Phase if phase is not Phase.FINAL),
        *((Phase.FINAL, each) for each in outcomes),
    ]
    for (phase, outcome), status, kind, attention, (released, aborting) in product(
        ends, (None, *Status), SOME_KINDS, ATTENTION, ((False, False), (True, False), (False, True))
    ):
        yield Transaction(
            client_transaction_id=IDENTITY,
            terminal="SN-TEST",
            type=kind,
            created_at=iso(NOW),
            updated_at=iso(NOW),
            phase=phase,
            trail=Trail(position=status, aborting=aborting),
            outcome=outcome,
            attention=attention,
            released=released,
        )


def test_every_state_has_the_code_that_its_next_step_allows() -> None:
    seen: defaultdict[DisplayCode, set[NextStep]] = defaultdict(set)
    for transaction, later in product(every_transaction(), (timedelta(0), GRACE * 2)):
        step = next_step(transaction, NOW + later, GRACE)
        approved = transaction.outcome is not None and transaction.outcome.result is Result.APPROVED
        unknown = step is NextStep.DONE and transaction.type is None
        code = display(transaction, step, Language.EN).code
        seen[code].add(step)
        assert (code in APPROVED) is (step is NextStep.DONE and approved and not unknown)
        assert (code is DisplayCode.NOT_PAID) is (step is NextStep.NEW_ID_OK)
        # The type of this approval is unknown, so it may be a charge or a refund, and an operator checks it.
        assert (code is DisplayCode.CALL_SUPERVISOR) is (step is NextStep.ASK_PERSON or unknown)
        assert (code is DisplayCode.ABORTING) is (transaction.trail.aborting and step is NextStep.WAIT)
        unseen = transaction.phase is Phase.ACTIVE and transaction.status not in list(Status)[:3]
        waiting = step is NextStep.WAIT and not transaction.trail.aborting
        assert (code is DisplayCode.LOOKING) is (waiting and (unseen or transaction.phase is Phase.IN_DOUBT))
    assert set(seen) == set(DisplayCode)
    for code in (
        DisplayCode.SENDING,
        DisplayCode.PRESENT_CARD,
        DisplayCode.CARD_READ,
        DisplayCode.ASKING_BANK,
        DisplayCode.ABORTING,
        DisplayCode.LOOKING,
    ):
        assert seen[code] == {NextStep.WAIT}


def test_every_type_has_its_texts() -> None:
    """A row of OPERATIONS contains the effect of an approval (charge, reserve, give back) and of another end."""
    paid = {kind for kind in KINDS if approval(kind) is DisplayCode.PAID}
    assert paid == {OperationType.CHARGE, OperationType.CAPTURE, OperationType.POST_TIP}
    reserved = {kind for kind in KINDS if approval(kind) is DisplayCode.RESERVED}
    assert reserved == {OperationType.PRE_AUTH, OperationType.RE_AUTH}
    others = {kind: approval(kind) for kind in KINDS if kind not in paid | reserved}
    assert others.pop(None) is DisplayCode.CALL_SUPERVISOR
    assert set(others.values()) == {DisplayCode.REVERSED}


def every_text() -> Iterator[tuple[DisplayCode, OperationType | None, Text]]:
    for code, kind in product(DisplayCode, KINDS):
        yield code, kind, text(code, kind)


def test_every_code_has_a_text_in_each_language() -> None:
    assert set(TEXTS) | {DisplayCode.NOT_PAID, DisplayCode.PRESENT_CARD} == set(DisplayCode)
    for code, kind, said in every_text():
        for language in Language:
            line = said.of(language, " 12345678.90")
            assert line == line.strip()
            assert line.isprintable()
            assert len(line) <= (LONGEST if code is DisplayCode.CALL_SUPERVISOR else SHORT), (code, kind, line)
        assert said.of(Language.EN) != said.of(Language.ES)


def test_no_text_suggests_another_charge_unless_that_is_safe() -> None:
    for (code, kind, said), language in product(every_text(), Language):
        line, never = said.of(language), NEVER_AGAIN[language]
        must = code in {DisplayCode.LOOKING, DisplayCode.CALL_SUPERVISOR}
        assert (never in line) is must, (code, kind, line)
        rest = line.replace(never, "").lower()
        for word in ("again", "otra vez", "charge", "cobr", "retry", "repeat", "repit"):
            assert word not in rest, (code, kind, line)
        negative = any(word in line.split() for word in ("NOT", "NO", "SIN"))
        assert negative is (code is DisplayCode.NOT_PAID), (code, kind, line)
        if code is DisplayCode.NOT_PAID and kind not in {OperationType.CHARGE, OperationType.PRE_AUTH}:
            assert ": " in line, f"{line} does not say that the original is unchanged"


def test_only_the_texts_of_a_payment_say_paid() -> None:
    for code, kind, said in every_text():
        words = {word.strip(":.,").upper() for language in Language for word in said.of(language).split()}
        if words & {"PAID", "PAGADO", "PAGADA"}:
            assert code is DisplayCode.PAID or (code, kind) in {
                (DisplayCode.NOT_PAID, OperationType.CHARGE),
                (DisplayCode.NOT_PAID, OperationType.POST_TIP),
            }


ASKED = b'{"iva": 1.20, "subtotal_iva": 10.00, "subtotal_iva0": 0}'


@every(
    ("asked", "authorized", "said"),
    [
        (ASKED, "5", Display(DisplayCode.PAID, "PAID 5.00 of 11.20")),  # a gift card can have less than the amount
        (ASKED, "11.2", Display(DisplayCode.PAID, "PAID 11.20")),
        (ASKED, "12", Display(DisplayCode.PAID, "PAID 12.00")),  # the authorized amount includes a tip
        (ASKED, None, Display(DisplayCode.PAID, "PAID 11.20")),
        (ASKED, "0", Display(DisplayCode.PAID, "PAID 0.00 of 11.20")),
        (b'{"tip": 1.5}', None, Display(DisplayCode.PAID, "PAID 1.50")),
        (b"{}", "1234567.8901", Display(DisplayCode.PAID, "PAID 1234567.8901")),
        (b"{}", None, Display(DisplayCode.PAID, "PAID")),
    ],
)
def test_the_text_paid_shows_the_authorized_amount_or_else_the_requested_amount(
    asked: bytes, authorized: str | None, said: Display
) -> None:
    transaction = next(each for each in every_transaction() if each.type is OperationType.CHARGE)
    paid = msgspec.structs.replace(
        transaction, amount=asked, phase=Phase.FINAL, outcome=ended(Result.APPROVED, authorized=authorized)
    )
    assert display(paid, NextStep.DONE, Language.EN) == said
    assert display(paid, NextStep.DONE, Language.ES).text == said.text.replace("PAID", "PAGADO").replace(" of ", " de ")


@every(
    ("kind", "said"),
    [
        (OperationType.REFUND, "REFUNDED 5.00"),  # acquirers report the amounts of refunds and voids in different ways
        (OperationType.VOID, "REVERSED 5.00"),
        (OperationType.CAPTURE, "PAID 5.00 of 11.20"),
        (None, TEXTS[DisplayCode.CALL_SUPERVISOR].en),
    ],
)
def test_a_partial_payment_also_shows_the_requested_amount(kind: OperationType | None, said: str) -> None:
    less = msgspec.structs.replace(
        next(every_transaction()),
        type=kind,
        amount=ASKED,
        phase=Phase.FINAL,
        outcome=ended(Result.APPROVED, authorized="5"),
    )
    assert display(less, NextStep.DONE, Language.EN).text == said


@every(
    ("amount", "said"),
    [
        ("11.2", "11.20"),
        ("11.2000", "11.20"),
        ("11", "11.00"),
        ("0.0001", "0.0001"),
        ("100", "100.00"),
        ("1E+2", "100.00"),
        ("999999999999.9999", "999999999999.9999"),
        ("123456789012345678901234.123456789012345678901234", "123456789012345678901234.123456789012345678901234"),
    ],
)
def test_an_amount_is_shown_exactly(amount: str, said: str) -> None:
    assert written(Decimal(amount)) == said


#: Code -> when the display is shown, in the words of the API.
WHEN = {
    DisplayCode.SENDING: f"`{Phase.STARTING}`",
    **{code: f"`{Phase.ACTIVE}`, `{status}`" for status, code in ACTIVE.items()},
    DisplayCode.ABORTING: f"`next_step` `{NextStep.WAIT}`, and the terminal may have accepted an abort",
    DisplayCode.LOOKING: f"`{Phase.IN_DOUBT}`, `next_step` `{NextStep.WAIT}`",
    **dict.fromkeys(APPROVED, f"`{Phase.FINAL}`, `{NextStep.DONE}`"),
    DisplayCode.NOT_PAID: f"`{Phase.FINAL}`, `{NextStep.NEW_ID_OK}`",
    DisplayCode.CALL_SUPERVISOR: f"`{NextStep.ASK_PERSON}`",
}


def table() -> str:
    """Return the table of docs/guides/integration.md, as the code generates it."""
    lines = ["| `display.code` | when | `type` | English | Spanish |", "| --- | --- | --- | --- | --- |"]
    for code in DisplayCode:
        kinds: defaultdict[Text, list[str]] = defaultdict(list)
        for kind in KINDS:
            if code not in APPROVED or approval(kind) is code:
                kinds[text(code, kind)].append(f"`{kind}`" if kind else "unknown")
        for said, of in kinds.items():
            which = "any" if len(of) == len(KINDS) else ", ".join(of)
            english, spanish = (said.of(language, " 11.20") for language in Language)
            lines.append(f"| `{code}` | {WHEN[code]} | {which} | {english} | {spanish} |")
    return "\n".join(lines)


def test_the_integration_guide_has_every_text() -> None:
    page = Path(__file__).parents[2] / "docs" / "guides" / "integration.md"
    assert f"\n\n{table()}\n\n" in page.read_text(), table()


@every("language", list(Language))
@every("code", [DisplayCode.PAID, DisplayCode.NOT_PAID, DisplayCode.LOOKING, DisplayCode.CALL_SUPERVISOR])
def test_the_page_for_the_cashier_has_the_text_that_the_till_shows(language: Language, code: DisplayCode) -> None:
    page = (Path(__file__).parents[2] / "docs" / "start" / "cashier.html").read_text()
    assert f"<th>{text(code, OperationType.CHARGE).of(language)}</th>" in page
