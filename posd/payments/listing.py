"""The list of transactions (local API, GET /transactions)."""

import sqlite3
from collections.abc import Mapping

from posd.payments import metadata_index, rows
from posd.payments.model import Transaction
from posd.records.paging import Filters, encode_cursor, joined


class Page(Filters, frozen=True, kw_only=True):
    """What to list. `metadata` is key (without quotes or backslashes) -> text."""

    sale: str | None = None
    metadata: Mapping[str, str] = {}

    def index(self) -> str:
        """See `Filters.index`."""
        return super().index() if self.sale is None else "sale"


#: Indices that hold most of what is stored: a word of the metadata is the better one to walk.
_LONG = frozenset({"newest", "terminal"})


def read_page(db: sqlite3.Connection, page: Page) -> tuple[list[Transaction], str | None]:
    """Return one page, newest first (`created_at`, then id), and the cursor of the next one."""
    conditions = page.conditions("client_transaction_id")
    if page.sale is not None:
        conditions.append(("sale = ?", (page.sale,)))
    for key, text in page.metadata.items():
        # A text by its value; a number, true or false as it stands in the till's JSON.
        path = f'$."{key}"'
        if text.startswith('"'):
            conditions.append(("metadata ->> ? = ?", (path, text)))
        else:
            conditions.append(("(metadata ->> ? = ? OR metadata -> ? = ?)", (path, text, path, text)))
    if page.index() in _LONG and page.metadata:
        word, places = metadata_index.word(*next(iter(page.metadata.items()))), page.places("w.at", "w.id")
        found = rows.select_by_word(db, word, *joined([*places, *conditions]), page.limit + 1)
    else:
        found = rows.select(db, page.index(), *joined(conditions), page.limit + 1)
    shown = found[: page.limit]
    more = len(found) > page.limit
    return shown, encode_cursor(shown[-1].created_at, shown[-1].client_transaction_id) if more else None
