"""The list of transactions: its filters, its pages, and totals (local API, GET /transactions)."""

import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import starmap
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base import index_words
from posd.base.json_types import AMOUNT, Exact
from posd.base.money import EXACT, ZERO, total
from posd.payments import model, rows
from posd.payments.amounts import TIP
from posd.payments.documents import Transaction
from posd.payments.model import OperationType, Result
from posd.payments.rows import Sum, Walk
from posd.records.pages import Condition, Filters, encode_cursor, joined

#: Indices that hold few of all payments: no other way is shorter to walk.
_SHORT = frozenset({"open", "attention", "sale"})
#: Of what else could be walked so many entries are counted to find where there are the fewest; then, so many more.
_COUNTED = (50, 5000)
#: Transactions that are added up at one time: about a millisecond, which others wait for at most.
_STEP = 100


#: Walks that find what is asked for together; no transaction is met in two of them.
Way = tuple[Walk, ...]


class Totals(msgspec.Struct, frozen=True):
    """What the transactions of one type and result come to."""

    type: Annotated[OperationType | None, Meta(description="null where the type is not known")]
    result: Annotated[Result | None, Meta(description="null for those that are not final")]
    count: Annotated[int, Meta(description="how many there are")]
    amount: Annotated[Exact, Meta(description="what was asked for: the sum of `amount` but for `tip`")]
    authorized_amount: Annotated[
        Exact, Meta(description="the sum of `authorized_amount` of their outcomes, where there is one")
    ]
    tips: Annotated[Exact, Meta(description="the sum of `tip` of their `amount`")]


class TransactionPage(msgspec.Struct, frozen=True):
    """Transactions, newest first."""

    transactions: Annotated[list[Transaction], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page, null on the last one")]
    totals: Annotated[
        list[Totals] | msgspec.UnsetType,
        Meta(description="with `totals=true`: over all payments that fit the filters, on each page"),
    ] = msgspec.UNSET


class Page(Filters, frozen=True, kw_only=True):
    """What to list. `metadata` is name -> text, see `posd.base.index_words`."""

    sale: str | None = None
    result: Result | None = None
    metadata: Mapping[str, str] = {}

    def conditions(self) -> dict[str, Condition]:
        """See `Filters.conditions`."""
        conditions = super().conditions()
        if "open" in conditions:
            conditions["open"] = (rows.OPEN, ())
        if self.sale is not None:
            conditions["sale"] = ("sale = ?", (self.sale,))
        if self.result is Result.APPROVED:
            conditions["approved"] = ("phase = 'final' AND unapproved IS NULL", ())
        elif self.result is not None:
            conditions["unapproved"] = ("unapproved = ?", (self.result,))
        return conditions

    def index(self) -> str:
        """See `Filters.index`."""
        if self.sale is not None:
            return "sale"
        index = super().index()
        if index in _SHORT or self.result in (None, Result.APPROVED):
            return index
        return "unapproved"


def read_page(db: sqlite3.Connection, page: Page) -> tuple[list[model.Transaction], str | None]:
    """Return one page, newest first (`created_at`, then id), and the cursor of the next one.

    Of ids that begin so it is one page, by id.
    """
    if page.id is not None:
        return rows.beginning(db, page.id, page.limit), None
    found = [item for walk, also in _walks(db, page) for item in rows.select(db, walk, also, page.limit + 1)]
    found.sort(key=lambda item: (item.created_at, item.client_transaction_id), reverse=True)
    shown = found[: page.limit]
    more = len(found) > page.limit
    return shown, encode_cursor(shown[-1].created_at, shown[-1].client_transaction_id) if more else None


def read_totals(db: sqlite3.Connection, page: Page) -> Generator[None, None, list[Totals]]:
    """Return the totals of all that the filters of a page let through, by type and result; each step is short."""
    found: defaultdict[tuple[str | None, str | None], _Sums] = defaultdict(_Sums)
    done = 0
    for walk, also in _walks(db, msgspec.structs.replace(page, cursor=None)):
        for row in rows.sums(db, walk, also):
            found[row.type, row.result].add(row)
            done += 1
            if done % _STEP == 0:
                yield
    totals = [sums.document(kind, result) for (kind, result), sums in found.items()]
    return sorted(totals, key=lambda item: (_TYPES.index(item.type), _RESULTS.index(item.result)))


#: The order of totals.
_TYPES, _RESULTS = (*OperationType, None), (*Result, None)
_AUTHORIZED = msgspec.json.Decoder(Decimal | None)


class _Sums:
    """The sums of one type and result."""

    def __init__(self) -> None:
        self._count = 0
        self._amount = self._authorized = self._tips = ZERO

    def add(self, row: Sum) -> None:
        """Add a transaction."""
        self._count += 1
        for name, value in AMOUNT.decode(row.amount).items():
            if name == TIP and isinstance(value, Decimal):
                self._tips = EXACT.add(self._tips, value)
            else:
                self._amount = total((self._amount, *(value.values() if isinstance(value, dict) else (value,))))
        if row.authorized_amount is not None:
            self._authorized = EXACT.add(self._authorized, _AUTHORIZED.decode(row.authorized_amount) or ZERO)

    def document(self, kind: str | None, result: str | None) -> Totals:
        """Return them as the local API shows them."""
        return Totals(
            type=None if kind is None else OperationType(kind),
            result=None if result is None else Result(result),
            count=self._count,
            amount=self._amount,
            authorized_amount=self._authorized,
            tips=self._tips,
        )


def _walks(db: sqlite3.Connection, page: Page) -> Iterator[tuple[Walk, Condition]]:
    """Yield what is to be walked, each with what else has to be met."""
    conditions, index = page.conditions(), page.index()
    members = [(words, tuple(map(rows.by_word, words))) for words in starmap(index_words.asked, page.metadata.items())]
    in_index: Way = (rows.by_index(index, conditions.get(index, ("1", ()))),)
    ways = [] if members and index == "newest" else [in_index]
    if index not in _SHORT:
        ways += [way for _, way in members]
    chosen = _shortest(db, ways)
    if chosen is in_index:
        conditions.pop(index, None)
    for walk in chosen:
        also = [rows.has_word(walk, words) for words, way in members if way is not chosen]
        yield walk, joined([*page.places(walk.at, walk.identity), *also, *conditions.values()])


def _shortest(db: sqlite3.Connection, ways: Sequence[Way]) -> Way:
    """Return the way with the fewest entries, the first where all are long."""
    for most in _COUNTED if len(ways) > 1 else ():
        counts = [sum(rows.count(db, walk, most) for walk in way) for way in ways]
        if min(counts) < most:
            return ways[counts.index(min(counts))]
    return ways[0]
