"""Place of an operation in its chain. The place decides which reference is sent, and why an operation is refused.

A chain is written as `p=pre-auth for 100, c=capture of p for 40 declined`. Each operation can name its original by id
(`of`), the reference that was sent (`under`) or returned (`gives`), its terminal (`on`), and its sale (`in`). The
requested operation is written in the same way.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from msgspec.json import decode
from msgspec.structs import replace

from posd.base.json_types import encode
from posd.base.operations import RESERVING, OperationType
from posd.base.problems import Problem
from posd.base.text import Language
from posd.base.times import iso
from posd.cli.payments.words import next_step
from posd.payments import chains, counting, model, rows
from posd.payments.amounts import NOTHING_MORE
from posd.payments.counting import Original
from posd.payments.documents import transaction_document
from posd.payments.model import Transaction
from posd.records.model import Phase, Pruned
from posd.records.service import CallsInFlight
from tests.rig.book import Book, book, identity
from tests.rig.tables import every, there

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ZONE = ZoneInfo("America/Guayaquil")
#: An id that posd does not know.
STRANGER = identity(900)
RESULTS = {"approved", "declined", "canceled", "not_started"}
OPEN = {"open": Phase.ACTIVE, "doubt": Phase.IN_DOUBT}


@pytest.fixture
def records() -> Iterator[Book]:
    with book() as made:
        yield made


def reference(number: int) -> str:
    """Return the reference in the approval of the operation with this number."""
    return identity(number + 10**9)


class Chain:
    """A chain in a database: name -> number of each operation."""

    def __init__(self, records: Book, text: str) -> None:
        self.records = records
        self.numbers: dict[str, int] = {}
        for item in text.split(", ") if text else ():
            name, _, words = item.partition("=")
            self.numbers[name] = len(self.numbers) + 1
            self._put(self.numbers[name], *read(words))

    def _put(self, number: int, kind: str, given: dict[str, str], words: set[str]) -> None:
        state = next(iter(words & OPEN.keys()), None)
        result = None if state else next(iter(words & RESULTS), "approved")
        amount = Decimal(given.get("for", "10"))
        found = self.records.put(
            number,
            NOON + timedelta(minutes=number),
            kind=None if kind == "unknown" else kind,
            original=self.numbers[given["of"]] if "of" in given else None,
            result=result,
            authorized=amount if result == "approved" else None,
            amount={"subtotal_iva0": amount},
            terminal=f"SN-{given.get('on', '1')}",
            transaction_reference=self.reference(given["under"]) if "under" in given else None,
            sale=given.get("in"),
            attention=("conflicting_final",) if "contradicted" in words else (),
            **({"phase": OPEN[state]} if state else {}),
        )
        if "gives" in given or "bare" in words:
            told = self.reference(given["gives"]) if "gives" in given else None
            row = there(rows.get(self.records.db, found))
            changed = replace(there(row.outcome), transaction_reference=told)
            self.records.remove(found)
            rows.insert(self.records.unit, replace(row, outcome=changed))

    def reference(self, name: str) -> str:
        return reference(self.numbers.get(name, 901))

    def id(self, name: str) -> str:
        return identity(self.numbers[name]) if name in self.numbers else STRANGER

    def told(self, text: str) -> str:
        """Replace ids and references by names, so that tests can compare the text."""
        for name in self.numbers:
            text = text.replace(self.id(name), name).replace(self.reference(name), f"reference of {name}")
        return text.replace(STRANGER, "stranger")

    def asked(self, text: str) -> Transaction:
        kind, given, words = read(text)
        named = {"original": self.id(given["of"])} if "of" in given else {}
        named |= {"transaction_reference": self.reference(given["under"])} if "under" in given else {}
        return Transaction(
            client_transaction_id=identity(500),
            terminal=f"SN-{given.get('on', '1')}",
            type=OperationType(kind),
            created_at=iso(NOON),
            updated_at=iso(NOON),
            phase=Phase.STARTING,
            amount=encode({"subtotal_iva0": Decimal(given["for"])} if "for" in given else {}),
            sent_to="https://192.0.2.7",
            repeat="repeat" in words,
            sale=given.get("in"),
            **named,
        )

    def place(self, text: str, **changes: Any) -> tuple[Transaction, frozenset[str]]:
        """Place the requested operation. Raise Problem."""
        return chains.place(self.records.unit, self.asked(text), ZONE, replace(NOTHING_MORE, **changes))


def read(text: str) -> tuple[str, dict[str, str], set[str]]:
    """Parse an operation. Return its type, the values after `of`, `under` and similar words, and the other words."""
    kind, *words = text.split()
    places = [place for place, word in enumerate(words) if word in ("of", "under", "gives", "for", "on", "in")]
    given = {words[place]: words[place + 1] for place in places}
    return kind, given, {word for place, word in enumerate(words) if not {place, place - 1} & {*places}}


PAID = "a=charge for 10"
RESERVED = "p=pre-auth for 100, r=re-auth of p for 120"

#: Existing chain, requested operation -> the operation whose reference is sent, the original, and the linked
#: operations.
PLACED: dict[tuple[str, str], tuple[str | None, str | None, str]] = {
    ("", "charge for 10"): (None, None, ""),
    (PAID, "void of a"): ("a", "a", "a"),
    (PAID, "void under a"): ("a", "a", "a"),
    (PAID, "refund of a for 10"): ("a", "a", "a"),
    (PAID, "void under stranger"): ("stranger", None, ""),
    ("", "capture under stranger for 999"): ("stranger", None, ""),
    ("a=unknown", "void under a"): ("a", "a", "a"),
    # A capture is sent with the newest approved reference.
    (RESERVED, "capture of p for 120"): ("r", "p", "p r"),
    (f"{RESERVED}, q=re-auth of p for 130 declined", "capture of p for 120"): ("r", "p", "p r q"),
    ("p=pre-auth for 100", "capture of p for 100"): ("p", "p", "p"),
    (RESERVED, "capture under r for 120"): ("r", "p", "p r"),
    ("p=pre-auth for 9, c=capture of p for 9", "void under c"): ("c", "c", "p c"),
    ("a=charge on 1, v=refund under a for 1 on 2", "refund of a for 2 repeat"): ("a", "a", "a v"),
    ("p=pre-auth for 9 on 1, r=re-auth under p for 9 on 2", "capture under r for 9 on 2"): ("r", "r", "p r"),
    ("r=re-auth for 9", "capture under r for 9"): ("r", "r", "r"),
    # If posd does not know the pre-authorization, the re-authorization counts as the original.
    ("r=re-auth under stranger for 120", "capture under r for 120"): ("r", "r", "r"),
    ("r=re-auth under stranger for 120", "void under r"): ("r", "r", "r"),
    # An operation may be sent with a reference before posd knows its original. The reference later links operation and
    # original. If several payments have the reference, the payment of the same terminal is the original.
    ("a=charge, v=void under a declined", "refund of a for 10 repeat"): ("a", "a", "a v"),
    ("a=charge on 1, b=charge on 2 gives a, v=refund under a for 1 on 1", "refund of a for 2 repeat"): (
        "a",
        "a",
        "a v",
    ),
    ("a=charge on 1, b=charge on 2 gives a, v=refund under a for 1 on 2", "refund of a for 10"): ("a", "a", "a"),
    ("a=charge on 1, b=charge on 2 gives a", "void under a on 2"): ("a", "b", "b"),
    ("a=charge, b=charge gives a, v=refund under a for 1", "refund of a for 10"): ("a", "a", "a"),
    ("c=capture under stranger for 9, f=refund under stranger for 2", "void of c"): ("c", "c", "c f"),
    ("x=refund under stranger for 1 declined", "void under stranger"): ("stranger", None, "x"),
    # An operation that ended without an effect blocks nothing.
    ("a=charge, v=void of a declined, w=void of a not_started", "void of a"): ("a", "a", "a v w"),
    # A chain includes operations that are linked through another operation.
    ("p=pre-auth for 9, r=re-auth of p for 9, c=capture under r for 1 declined", "capture of p for 1"): (
        "r",
        "p",
        "p r c",
    ),
    # An operation may take the rest of the amount, to the last cent.
    ("a=charge for 9, f=refund of a for 4", "refund of a for 5 repeat"): ("a", "a", "a f"),
    ("p=pre-auth for 9, c=capture of p for 4", "capture of p for 5 repeat"): ("p", "p", "p c"),
    ("a=charge for 9, t=post-tip of a for 1", "void of a for 9"): ("a", "a", "a t"),
}


@every("there_is, wanted", PLACED)
def test_an_operation_is_sent_under_the_right_reference(there_is: str, wanted: str) -> None:
    sends, derives, linked = PLACED[there_is, wanted]
    with book() as records:
        chain = Chain(records, there_is)
        placed, ids = chain.place(wanted)
        assert placed.transaction_reference == (chain.reference(sends) if sends else None)
        assert placed.derives_from == (chain.id(derives) if derives else None)
        assert placed.amount == chain.asked(wanted).amount, "posd sends only the till's amount"
        assert ids == {placed.client_transaction_id, *map(chain.id, linked.split())}


#: Existing chain, requested operation -> the code, and a part of the reason, the blocking operations, or the requested
#: and the permitted amount.
REFUSED: dict[tuple[str, str], tuple[str, str]] = {
    ("", "void of stranger"): ("unknown_original", "no transaction stranger is known here"),
    (PAID, "capture of a for 1"): ("unknown_original", "a is a charge;"),
    (PAID, "re-auth under a for 1"): ("unknown_original", "a is a charge;"),
    ("a=charge declined", "void of a"): ("unknown_original", "a is not approved"),
    ("a=charge bare", "void of a"): ("unknown_original", "without a transaction_reference"),
    (RESERVED, "capture of r for 1"): ("unknown_original", "name its pre-auth, p"),
    ("p=pre-auth for 9, c=capture of p for 1", "capture of c for 1"): ("unknown_original", "c is a capture;"),
    (RESERVED, "re-auth of r for 1"): ("unknown_original", "name its pre-auth, p"),
    (f"{RESERVED}, q=re-auth of p for 9 declined", "void of q"): ("unknown_original", "name its pre-auth, p"),
    ("r=re-auth under stranger for 9, q=re-auth of r for 9", "capture of q for 1"): (
        "unknown_original",
        "q is a re-auth;",
    ),
    (RESERVED, "refund of r for 1"): ("unknown_original", "r is a re-auth;"),
    ("r=re-auth under stranger for 9", "capture of r for 1"): ("unknown_original", "r is a re-auth;"),
    ("a=charge on 1, b=charge on 1 gives a", "void under a"): ("unknown_original", "(a, b, …)"),
    ("a=charge, v=void of a open", "refund of a for 1"): ("chain_conflict", "v"),
    ("a=charge, v=void of a doubt", "refund of a for 1"): ("chain_conflict", "v"),
    ("a=charge, v=void of a", "refund of a for 1"): ("chain_conflict", "v"),
    ("a=charge, v=void of a", "void of a"): ("already_derived", "v"),
    ("p=pre-auth for 9, c=capture of p for 9", "void of p"): ("chain_conflict", "c"),
    ("a=charge, f=refund of a for 1", "void of a"): ("chain_conflict", "f"),
    ("a=charge for 9, f=refund of a for 1", "refund of a for 1"): ("already_derived", "f"),
    ("p=pre-auth for 9, c=capture of p for 1", "capture of p for 1"): ("already_derived", "c"),
    ("a=charge, v=void of a declined contradicted", "refund of a for 1"): ("chain_conflict", "v"),
    ("p=pre-auth for 9, r=re-auth of p for 9, c=capture under r for 1 open", "void of p"): ("chain_conflict", "c"),
    ("r=re-auth under stranger for 9, c=capture under stranger for 1", "capture under r for 1"): (
        "already_derived",
        "c",
    ),
    ("r=re-auth under stranger for 9, c=capture under r for 1", "capture under stranger for 1"): (
        "already_derived",
        "c",
    ),
    ("r=re-auth under stranger for 9, v=void under r open", "void under stranger"): ("already_derived", "v"),
    ("r=re-auth under stranger for 9, v=void under stranger", "void under r"): ("already_derived", "v"),
    ("a=charge, v=void under a open", "void of a"): ("already_derived", "v"),
    ("a=charge, v=void of a under stranger open", "void under a"): ("already_derived", "v"),
    ("p=pre-auth for 9, r=re-auth of p for 9, c=capture under r for 1", "capture of p for 1"): ("already_derived", "c"),
    ("p=pre-auth for 9, c=capture of p for 5, v=void of p open", "refund of c for 1"): ("chain_conflict", "v"),
    ("p=pre-auth for 9, c=capture under p for 5, v=void of p open", "refund of c for 1"): ("chain_conflict", "v"),
    ("p=pre-auth for 9, c=capture of p for 1", "re-auth of p for 10"): ("chain_conflict", "c"),
    ("v=void under stranger", "refund under stranger for 1"): ("chain_conflict", "v"),
    ("a=charge for 9", "refund of a for 10"): ("amount_exceeds", "10 of 9"),
    ("a=charge for 9, f=refund of a for 4", "refund of a for 6 repeat"): ("amount_exceeds", "6 of 5"),
    ("a=charge for 9, t=post-tip of a for 1", "refund of a for 11"): ("amount_exceeds", "11 of 10"),
    ("p=pre-auth for 9", "capture of p for 10"): ("amount_exceeds", "10 of 9"),
    ("p=pre-auth for 9, c=capture of p for 4", "capture of p for 6 repeat"): ("amount_exceeds", "6 of 5"),
    ("a=charge for 9", "void of a for 10"): ("amount_exceeds", "10 of 9"),
    ("a=charge for 9", "void of a for 8"): ("amount_exceeds", "8 of 9"),
}


@every("there_is, wanted", REFUSED)
def test_a_refusal_names_what_blocks_the_operation(there_is: str, wanted: str) -> None:
    code, what = REFUSED[there_is, wanted]
    with book() as records:
        chain = Chain(records, there_is)
        with pytest.raises(Problem) as raised:
            chain.place(wanted)
        detail, extra = chain.told(raised.value.detail), raised.value.extra
        assert (raised.value.code, detail.startswith("cannot start: ")) == (code, True)
        if code == "unknown_original":
            assert what in detail
            assert ("name its pre-auth" in detail) == ("name its pre-auth" in what)
        elif code == "amount_exceeds":
            assert f"{extra['asked']} of {extra['allowed']}" == what
        else:
            assert [chain.told(identity) for identity in extra["transactions"]] == [what]
            reason, standing, rest = detail.removeprefix("cannot start: ").partition(f" {what} (")
            assert standing
            assert len(reason.split()) > 3, f"no reason stands before {what}: {detail}"
            assert ("the same original" in reason) == (code == "already_derived")
            outcome = there(rows.get(records.db, chain.id(what))).outcome
            assert rest.partition(")")[0] == (outcome.result if outcome else "open")


def test_the_reason_of_a_conflict_depends_on_the_state_of_the_other_operation() -> None:
    reasons = []
    for state in ("open", "doubt", "approved"):
        with book() as records, pytest.raises(Problem) as raised:
            (chain := Chain(records, f"a=charge, v=void of a {state}")).place("refund of a for 1")
        reasons.append(chain.told(raised.value.detail).partition(" v (")[0])
    assert reasons[0] == reasons[1] != reasons[2]


CAPTURED = "p=pre-auth for 9, c=capture of p for 4"


@every(
    "there_is, wanted, advice",
    [
        ("a=charge, v=void of a open", "void of a", "Wait for its outcome first, or abort it."),
        ("a=charge, v=void of a declined contradicted", "refund of a for 1", "an operator has to settle it first."),
        (CAPTURED, "capture of p for 5", 'if this capture is a further one, say so with "additional": true.'),
        (CAPTURED, "void of p", "void the capture: its id is c."),
        (f"{CAPTURED}, d=capture of p for 5, v=void of c", "void of p", "void the capture: its id is d."),
        (f"{CAPTURED}, v=void of c declined", "void of p", "void the capture: its id is c."),
        (f"{CAPTURED}, v=void of c", "void of p", "The capture was voided or refunded already"),
        (f"{CAPTURED}, f=refund of c for 1", "void of p", "The capture was voided or refunded already"),
        ("a=charge, v=void of a", "refund of a for 1", "for a further payment start a new charge."),
        ("a=charge, f=refund of a for 1", "void of a", "A further refund is possible instead."),
    ],
)
def test_a_refusal_advises_only_what_posd_accepts(there_is: str, wanted: str, advice: str) -> None:
    with book() as records, pytest.raises(Problem) as raised:
        (chain := Chain(records, there_is)).place(wanted)
    assert advice in chain.told(raised.value.detail)


@every(
    "there_is",
    [
        "p=pre-auth for 9",
        CAPTURED,
        RESERVED,
        f"{CAPTURED} declined",
        f"{CAPTURED} open",
        f"{CAPTURED} doubt",
        f"{CAPTURED} contradicted",
        f"{CAPTURED}, v=void of c",
        f"{CAPTURED}, v=void of c open",
        "p=pre-auth for 9, v=void of p",
        "p=pre-auth for 9, v=void under p",
        f"{RESERVED}, c=capture under r for 4",
        f"{RESERVED}, v=void of p open",
        f"{RESERVED}, q=re-auth of p for 4 declined",
    ],
)
def test_a_reservation_offers_exactly_the_operations_that_posd_accepts(there_is: str) -> None:
    with book() as records:
        chain = Chain(records, there_is)
        family = [document(records, identity(number)) for number in chain.numbers.values()]
        for shown in (item for item in family if item["type"] in RESERVING and item["outcome"]["result"] == "approved"):
            commands = next_step(shown, [item for item in family if item is not shown]).commands
            for command in ("capture", "void"):
                try:
                    chain.place({"capture": "capture of p for 1", "void": "void of p"}[command])
                    accepted = True
                except Problem:
                    accepted = False
                assert (f"posd {command} {chain.id('p')}" in " ".join(commands)) == accepted, command


def document(records: Book, name: str) -> dict[str, Any]:
    """Return the API's document of a payment."""
    item = there(rows.get(records.db, name))
    step = model.next_step(item, NOON, timedelta(days=1))
    made = transaction_document(records.db, item, step, Language.EN, abortable=False)
    found: dict[str, Any] = decode(encode(made))
    return found


@every("kind", ["capture", "void", "post-tip", "re-auth", "refund"])
@every("state", ["open", "approved"])
def test_the_reference_identifies_an_original_that_posd_does_not_know(kind: str, state: str) -> None:
    with book() as records:
        chain = Chain(records, f"x={kind} under stranger for 1 {state}")
        if (kind, state) == ("re-auth", "approved"):
            chain.place("re-auth under stranger for 1")
            return
        with pytest.raises(Problem) as raised:
            chain.place(f"{kind} under stranger for 1")
        assert (raised.value.code, raised.value.extra["transactions"]) == ("already_derived", [chain.id("x")])


def test_an_operation_that_retention_removed_is_named_with_its_end(records: Book) -> None:
    rows.PAYMENT.keep_pruned(records.db, Pruned(STRANGER, "SN-1", "charge", "approved", "2026-01-02"))
    with pytest.raises(Problem) as raised:
        Chain(records, "").place("void of stranger")
    assert raised.value.code == "unknown_original"
    assert "ended approved on 2026-01-02, and its record was removed at the end of its retention" in raised.value.detail
    assert "give its `transaction_reference` instead. No void was sent" in raised.value.detail


@every(
    "occurred, until",
    [
        ("2026-11-20T23:59:00-05:00", "2026-11-21T05:00:00.000Z"),  # the approval may reach posd on another day
        ("2026-11-19T23:59:00-05:00", "2026-11-20T05:00:00.000Z"),
        ("no moment", "2026-11-21T05:00:00.000Z"),  # without a usable time, the time of receipt counts
        ("9999-12-31T23:59:00+00:00", "2026-11-21T05:00:00.000Z"),
    ],
)
def test_a_void_is_a_cancellation_until_the_shops_midnight_after_the_approval(occurred: str, until: str) -> None:
    with book() as records:
        paid = records.put(1, NOON, occurred_at=occurred)
        records.put(2, NOON, kind="pre-auth", amount={"subtotal_iva0": 9})
        records.put(3, NOON, kind="re-auth", original=2, amount={"subtotal_iva0": 9})
        asked = Chain(records, "").asked("void")
        placed, _ = chains.place(records.unit, replace(asked, original=paid), ZONE, NOTHING_MORE)
        assert placed.same_day_until == until
        placed, _ = chains.place(records.unit, replace(asked, original=identity(2)), ZONE, NOTHING_MORE)
        assert placed.same_day_until == "2026-11-21T05:00:00.000Z"
        with book() as others:
            placed, _ = Chain(others, "r=re-auth under stranger for 9").place("void under r")
            assert placed.same_day_until is None, "the pre-authorization may be from an earlier day"
        for kind in ("refund", "capture"):
            original = identity(1 if kind == "refund" else 2)
            other = replace(asked, type=OperationType(kind), original=original, amount=b'{"subtotal_iva0": 1}')
            assert chains.place(records.unit, other, ZONE, NOTHING_MORE)[0].same_day_until is None


def test_a_refusal_names_only_some_of_many_blocking_operations(records: Book) -> None:
    many = ", ".join(f"f{number}=refund of a for 0.01" for number in range(counting.MAX_SHOWN + 1))
    chain = Chain(records, f"a=charge, {many}")
    with pytest.raises(Problem) as raised:
        chain.place("refund of a for 1")
    assert raised.value.extra["transactions"] == [chain.id(f"f{number}") for number in range(counting.MAX_SHOWN)]


def test_an_original_is_found_by_its_id_or_else_by_its_reference(records: Book) -> None:
    chain = Chain(records, f"{RESERVED}, v=void under p, w=void under r, x=void under stranger, y=void of p")
    db = records.db
    found = {name: there(rows.get(db, chain.id(name))) for name in chain.numbers}
    originals = {name: chains.original_of(db, item) for name, item in found.items()}
    assert {name: chain.told(item) for name, item in originals.items() if item} == {
        "r": "p",
        "v": "p",
        "w": "p",
        "y": "p",
    }
    assert [chain.told(item) for item in chains.derived_ids(db, found["p"])] == ["r", "v", "y"]
    read = {name: chains.read_original(db, item) for name, item in found.items()}
    assert {name for name, item in read.items() if item is not None} == {"v", "w", "y"}
    of_a_lost_original = replace(found["v"], original=STRANGER, derives_from=None)
    assert chains.original_of(db, of_a_lost_original) == STRANGER  # another payment has the reference of this operation
    assert chains.named(db, chain.id("p"), None) == found["p"]
    assert chains.named(db, None, chain.reference("r").upper()) == found["r"]
    assert chains.named(db, None, None) is None
    assert chains.named(db, STRANGER, chain.reference("r")) is None


def test_a_reference_of_two_payments_is_reported(records: Book) -> None:
    chain = Chain(records, "a=charge, b=charge gives a, c=charge, d=charge bare, e=charge declined")
    others = {
        name: chains.another_with_reference(records.db, there(rows.get(records.db, chain.id(name)))) for name in "abcde"
    }
    assert {name: chain.told(item) for name, item in others.items() if item} == {"a": "b", "b": "a"}
    assert chains.named(records.db, None, chain.reference("a")) is None


def test_the_amount_of_an_original_has_only_the_tips_before_the_operation(records: Book) -> None:
    chain = Chain(records, "a=charge for 9, t=post-tip of a for 1, v=void of a for 9, u=post-tip of a for 2")
    original, void, late = (there(rows.get(records.db, chain.id(name))) for name in "avu")
    assert chains.original_facts(records.db, void, original) == Original(OperationType.CHARGE, Decimal(9), Decimal(1))
    assert there(chains.original_facts(records.db, late, original)).tips == 1
    asked = chain.asked("void of a for 9")
    assert there(chains.original_facts(records.db, asked, original)).tips == 3
    assert chains.original_facts(records.db, void, None) is None


#: Existing payments of a sale, requested operation -> the payments that block the operation.
OF_SALE = {
    ("a=charge in s", "charge for 1 in s"): "a",
    ("a=charge in s open", "charge for 1 in s"): "a",
    ("a=charge in s doubt", "charge for 1 in s"): "a",
    ("a=charge in s declined contradicted", "charge for 1 in s"): "a",
    ("a=charge in s on 1", "charge for 1 in s on 2"): "a",
    ("a=charge in s, b=charge in s", "charge for 1 in s"): "b, a",
    ("a=charge in s declined, b=charge in s not_started", "charge for 1 in s"): "",
    ("a=charge in s canceled", "charge for 1 in s"): "",
    ("a=charge in s", "charge for 1 in s repeat"): "",
    ("a=charge in s", "charge for 1 in other"): "",
    ("a=charge", "charge for 1"): "",
    ("a=charge in s", "void of a in s"): "",  # only its own chain blocks the void
    ("p=pre-auth for 9 in s, c=capture of p for 9 in s, v=void of c in s open", "charge for 1 in s"): "v, c, p",
    ("p=pre-auth for 9 in s, c=capture of p for 9 in s, a=charge", "void of a in s"): "c, p",
    ("p=pre-auth for 9 in s, c=capture of p for 9 in s", "void under stranger in s"): "c, p",
}


@every("there_is, wanted", OF_SALE)
def test_a_sale_is_paid_once_unless_the_till_asks_for_an_additional_payment(there_is: str, wanted: str) -> None:
    with book() as records:
        chain = Chain(records, there_is)
        asked = chain.asked(wanted)
        _, own = chain.place(wanted)
        if others := OF_SALE[there_is, wanted]:
            with pytest.raises(Problem) as raised:
                chains.refuse_sale(records.unit, asked, own)
            assert (raised.value.code, others in chain.told(raised.value.detail)) == ("sale_conflict", True)
            assert raised.value.extra["transactions"] == [chain.id(name) for name in others.split(", ")]
        else:
            chains.refuse_sale(records.unit, asked, own)


TRIED = "a=charge, v=void of a declined, w=void of a declined"
SHARED = "a=charge on 1, b=charge gives a on 2, c=charge gives a on 3, v=refund under a for 1 on 1"
DECLINED = "b=charge in s declined, c=charge in s declined"


@every(
    "limit, value, there_is, wanted, code, blocking",
    [
        ("MAX_CHAIN", 3, TRIED, "void of a", "", ""),
        ("MAX_CHAIN", 2, TRIED, "void of a", "chain_conflict", ""),
        ("MAX_GIVERS", 3, SHARED, "refund of a for 1 repeat", "", ""),
        ("MAX_GIVERS", 2, SHARED, "refund of a for 1 repeat", "chain_conflict", ""),
        ("MAX_OF_SALE", 2, DECLINED, "charge for 1 in s", "", ""),
        ("MAX_OF_SALE", 2, f"{DECLINED}, d=charge in s declined", "charge for 1 in s", "sale_conflict", ""),
        ("MAX_OF_SALE", 2, f"a=charge in s, {DECLINED}", "charge for 1 in s", "sale_conflict", "a"),
    ],
)
def test_an_operation_is_refused_if_posd_cannot_read_all_that_may_block_it(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int, there_is: str, wanted: str, code: str, blocking: str
) -> None:
    with book() as records, monkeypatch.context() as patch:
        patch.setattr(chains, limit, value)
        chain = Chain(records, there_is)
        try:
            chains.refuse_sale(records.unit, chain.asked(wanted), chain.place(wanted)[1])
        except Problem as problem:
            found = problem.code, " ".join(map(chain.told, problem.extra["transactions"]))
        else:
            found = "", ""
        assert found == (code, blocking)


def test_an_operation_belongs_to_its_payment_if_many_have_the_reference(
    records: Book, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "MAX_GIVERS", 1)
    chain = Chain(records, f"{SHARED}, w=refund under a for 1 on 3")
    third = there(rows.get(records.db, chain.id("c")))
    assert chains.derived_ids(records.db, third) == [chain.id("w")]


def stays(_serial: str) -> bool:
    """Report that no terminal has lost its address."""
    return False


def test_after_a_terminal_lost_its_address_its_payment_still_blocks_the_device_there() -> None:
    with book() as records:
        chain, calls = Chain(records, "a=charge open on 1"), CallsInFlight()
        asked = chain.asked("charge for 1 on 2")
        rows.take_lease(records.unit, "SN-1", chain.id("a"))
        here = there(rows.get(records.db, chain.id("a")))
        at_its_address = replace(asked, sent_to=here.sent_to)
        elsewhere = replace(asked, sent_to="https://192.0.2.1:6869")
        with pytest.raises(Problem) as raised:
            chains.refuse_busy(records.unit, at_its_address, calls, {"SN-1"}.__contains__)
        assert raised.value.extra == {"blocking_transaction": chain.id("a")}
        chains.refuse_busy(records.unit, elsewhere, calls, {"SN-1"}.__contains__)
        chains.refuse_busy(records.unit, at_its_address, calls, stays)


def test_a_terminal_is_free_once_its_payment_has_ended_and_no_call_for_it_is_under_way() -> None:
    for state, free in (("open", False), ("doubt", False), ("approved", True)):
        with book() as records:
            chain, calls = Chain(records, f"a=charge {state} on 1"), CallsInFlight()
            other, asked = chain.asked("charge for 1 on 2"), chain.asked("charge for 1 on 1")
            asked = replace(asked, sent_to="https://192.0.2.1:6869")  # the terminal has another address meanwhile
            chains.refuse_busy(records.unit, asked, calls, stays)  # the payment holds no terminal
            rows.take_lease(records.unit, "SN-1", chain.id("a"))
            chains.refuse_busy(records.unit, other, calls, stays)
            if free:
                chains.refuse_busy(records.unit, asked, calls, stays)
            with calls.call(chain.id("a")), pytest.raises(Problem) as raised:
                chains.refuse_busy(records.unit, asked, calls, stays)
            if not free:
                with pytest.raises(Problem) as raised:
                    chains.refuse_busy(records.unit, asked, calls, stays)
            assert (raised.value.code, raised.value.extra) == ("terminal_busy", {"blocking_transaction": chain.id("a")})
            assert "terminal SN-1 is still busy with a (" in chain.told(raised.value.detail)
            assert "(posd abort a) or free the terminal (posd release a)" in chain.told(raised.value.detail)
