"""List of transactions: filters, pages and totals (local API, GET /transactions)."""

import sqlite3
from collections.abc import Generator, Iterator, Mapping, Sequence
from itertools import starmap
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base.canonical_json import asked_words
from posd.base.json_types import Exact
from posd.base.money import ZERO, total
from posd.base.operations import STANDALONE, OperationType
from posd.payments import chains, model, rows
from posd.payments.accounting import currency_of
from posd.payments.counting import Of, effect, facts_of
from posd.payments.documents import Transaction
from posd.payments.model import Result
from posd.payments.rows import IndexScan
from posd.records.pages import Condition, Filters, encode_cursor, fill, joined

#: Indexes that contain only few payments. If a filter has such an index, no index of metadata is considered.
_SHORT = frozenset({"open", "attention", "sale"})
#: Limits up to which the entries of each index are counted, to find the shortest index. The second limit is used if all
#: indexes exceed the first.
_COUNTED = (50, 5000)
#: Estimated size of a payment in a list without the till's metadata and options, in bytes.
ROW_BYTES = 2048
#: Number of transactions that are added to the totals in one step. A step blocks other reads for about a millisecond.
_STEP = 50
#: Cost of one look-up of an original: it takes as long as the addition of this number of transactions.
_ORIGINAL = 10


#: Scans that together find all transactions that meet the filters, and no transaction twice.
Way = tuple[IndexScan, ...]


class Totals(msgspec.Struct, frozen=True):
    """Totals of the transactions of one type and result."""

    type: Annotated[OperationType | None, Meta(description="null if the type is not known")]
    result: Annotated[Result | None, Meta(description="null if they are not final")]
    of: Annotated[Of | None, Meta(description="what they move: money or a reservation; null: not known")]
    currency: Annotated[str | None, Meta(description="as in the terminals' final events")]
    count: Annotated[int, Meta(description="number of transactions")]
    amount: Annotated[Exact, Meta(description="requested sum: the sum of `amount` without `tip`")]
    authorized_amount: Annotated[Exact, Meta(description="sum of the known amounts of approved operations")]
    tips: Annotated[Exact, Meta(description="the sum of the tips in `amount`")]


class TransactionPage(msgspec.Struct, frozen=True):
    """Transactions, newest first."""

    transactions: Annotated[list[Transaction], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page, null on the last one")]
    totals: Annotated[
        list[Totals] | msgspec.UnsetType,
        Meta(description="with `totals=true`: totals of all payments that match, on each page"),
    ] = msgspec.UNSET


class TransactionQuery(Filters, frozen=True, kw_only=True):
    """Filters of the list. `metadata`: name -> searched text (see `canonical_json.asked_words`)."""

    sale: str | None = None
    result: Result | None = None
    metadata: Mapping[str, str] = {}

    def conditions(self) -> dict[str, Condition]:
        """Return filter name -> condition on a row (see `Filters.conditions`)."""
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
        """Return the name of the index to read (see `Filters.index`)."""
        if self.sale is not None:
            return "sale"
        index = super().index()
        if index in _SHORT or self.result in (None, Result.APPROVED):
            return index
        return "unapproved"


def _key(item: model.Transaction) -> tuple[str, str]:
    return item.created_at, item.client_transaction_id


def _size(item: model.Transaction) -> int:
    return ROW_BYTES + len(item.metadata) + len(item.options)


def read_page(db: sqlite3.Connection, page: TransactionQuery) -> tuple[list[model.Transaction], str | None]:
    """Return one page, newest first (`created_at`, then id), and the cursor of the next page.

    A filter by the beginning of ids has one page, sorted by id.
    """
    if page.id is not None:
        return rows.beginning(db, page.id, page.limit), None
    found: list[model.Transaction] = []
    ends = []
    for walk, also in _walks(db, page):
        part, full = fill(rows.select(db, walk, also, page.limit + 1), _size)
        found += part
        ends += [_key(part[-1])] if full else []
    found.sort(key=_key, reverse=True)
    shown = [item for item in found[: page.limit] if not ends or _key(item) >= max(ends)]
    more = len(found) > len(shown) or bool(ends)
    return shown, encode_cursor(shown[-1].created_at, shown[-1].client_transaction_id) if more else None


def read_totals(db: sqlite3.Connection, page: TransactionQuery) -> Generator[None, None, list[Totals]]:
    """Compute the totals of all transactions that match the filters, in short steps."""
    found: dict[_Key, Totals] = {}
    done = 0
    for walk, also in _walks(db, msgspec.structs.replace(page, cursor=None)):
        for item in rows.counted(db, walk, also):
            done += _add(db, found, *item)
            if done >= _STEP:
                yield
                done = 0
    return sorted(found.values(), key=_place)


#: Transactions with equal values of these four are added up: type, result, kind of money, currency.
_Key = tuple[OperationType | None, Result | None, Of | None, str | None]
#: Order of the totals.
_TYPES, _RESULTS, _OFS = (*OperationType, None), (*Result, None), (*Of, None)


def _place(item: Totals) -> tuple[int, int, int, str]:
    return (_TYPES.index(item.type), _RESULTS.index(item.result), _OFS.index(item.of), item.currency or "")


def _add(
    db: sqlite3.Connection,
    found: dict[_Key, Totals],
    identity: str,
    kind: OperationType | None,
    amount: bytes,
    outcome: model.Outcome | None,
) -> int:
    """Add a transaction to its total. Return the cost: 1, or `_ORIGINAL` if further rows were read.

    Further rows are read only if the effect or the currency of the transaction depends on them.
    """
    alone = kind in STANDALONE and (outcome is None or outcome.currency is not None)
    item = None if alone else rows.get(db, identity)
    facts = facts_of(kind, amount, outcome)
    moved = effect(facts, chains.original_facts(db, item, chains.read_original(db, item)) if item else None)
    came_to = abs(moved.amount or ZERO) if facts.result is Result.APPROVED else ZERO
    currency = currency_of(db, item) if item else outcome.currency if outcome else None
    key = (facts.type, facts.result, moved.of, currency)
    old = found.get(key) or Totals(*key, count=0, amount=ZERO, authorized_amount=ZERO, tips=ZERO)
    found[key] = Totals(
        *key,
        count=old.count + 1,
        amount=total((old.amount, facts.requested, -facts.requested_tip)),
        authorized_amount=total((old.authorized_amount, came_to)),
        tips=total((old.tips, facts.requested_tip)),
    )
    return 1 if alone else _ORIGINAL


def _walks(db: sqlite3.Connection, page: TransactionQuery) -> Iterator[tuple[IndexScan, Condition]]:
    """Yield the scans with the fewest entries, each with the conditions that its entries must also meet."""
    conditions, index = page.conditions(), page.index()
    members = [(words, tuple(map(rows.by_word, words))) for words in starmap(asked_words, page.metadata.items())]
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
    """Return the scans with the fewest entries together, or the first ones if all exceed the limits."""
    for most in _COUNTED if len(ways) > 1 else ():
        counts = [sum(rows.count(db, walk, most) for walk in way) for way in ways]
        if min(counts) < most:
            return ways[counts.index(min(counts))]
    return ways[0]
