"""The list of transactions: its filters and pages (local API, GET /transactions)."""

import sqlite3
from collections.abc import Iterator, Mapping
from itertools import starmap
from typing import Annotated

import msgspec
from msgspec import Meta

from posd.base import index_words
from posd.payments import model, rows
from posd.payments.documents import Transaction
from posd.payments.model import Result
from posd.payments.rows import Walk
from posd.records.pages import Condition, Filters, encode_cursor, joined

#: Indices that hold few of what is stored, whatever that is: nothing else is better to walk.
_SHORT = frozenset({"open", "attention", "sale"})
#: Of what else could be walked so many entries are counted, to find where there are the fewest.
_COUNTED = 1000


class TransactionPage(msgspec.Struct, frozen=True):
    """Transactions, newest first."""

    transactions: Annotated[list[Transaction], Meta(description="newest first")]
    next_cursor: Annotated[str | None, Meta(description="`cursor` of the next page, null on the last one")]


class Page(Filters, frozen=True, kw_only=True):
    """What to list. `metadata` is name -> text, see `posd.base.index_words`."""

    sale: str | None = None
    result: Result | None = None
    metadata: Mapping[str, str] = {}

    def conditions(self) -> dict[str, Condition]:
        """See `Filters.conditions`."""
        conditions = super().conditions()
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
    """Return one page, newest first (`created_at`, then id), and the cursor of the next one."""
    found = [item for walk, also in _walks(db, page) for item in rows.select(db, walk, also, page.limit + 1)]
    found.sort(key=lambda item: (item.created_at, item.client_transaction_id), reverse=True)
    shown = found[: page.limit]
    more = len(found) > page.limit
    return shown, encode_cursor(shown[-1].created_at, shown[-1].client_transaction_id) if more else None


def _walks(db: sqlite3.Connection, page: Page) -> Iterator[tuple[Walk, Condition]]:
    """Yield what is to be walked, each with what else has to be met; no transaction is met in two walks."""
    conditions, index = page.conditions(), page.index()
    members = [(words, tuple(map(rows.by_word, words))) for words in starmap(index_words.asked, page.metadata.items())]
    in_index: tuple[Walk, ...] = (rows.by_index(index, conditions.get(index, ("1", ()))),)
    ways = [] if members and index == "newest" else [in_index]
    if index not in _SHORT:
        ways += [way for _, way in members]
    chosen = ways[0]
    if len(ways) > 1:
        chosen = min(ways, key=lambda way: sum(rows.count(db, walk, _COUNTED) for walk in way))
    if chosen is in_index:
        conditions.pop(index, None)
    for walk in chosen:
        also = [rows.has_word(walk, words) for words, way in members if way is not chosen]
        yield walk, joined([*page.places(walk.at, walk.identity), *also, *conditions.values()])
