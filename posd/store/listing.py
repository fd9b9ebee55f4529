"""The list of transactions: filters, order, and a cursor that survives inserts (local API, GET /transactions)."""

import binascii
import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

import msgspec

from posd.core.transactions import Phase, Transaction
from posd.store import transactions


class Page(msgspec.Struct, frozen=True):
    """What to list. `metadata` is key (without quotes or backslashes) -> text; times are as stored."""

    limit: int
    phase: Phase | None = None
    open: bool = False
    terminal: str | None = None
    sale: str | None = None
    attention: bool = False
    since: str | None = None
    until: str | None = None
    metadata: Mapping[str, str] = {}
    cursor: tuple[str, str] | None = None


def read_page(db: sqlite3.Connection, page: Page) -> tuple[list[Transaction], str | None]:
    """Return one page, newest first (`created_at`, then id), and the cursor of the next one."""
    conditions: list[tuple[str, tuple[Any, ...]]] = [("1", ())]
    if page.phase is not None:
        conditions.append(("phase = ?", (page.phase,)))
    if page.open:
        conditions.append(("phase <> 'final'", ()))
    if page.attention:
        conditions.append(("attention <> '[]'", ()))
    for column, operator, value in (
        ("terminal", "=", page.terminal),
        ("sale", "=", page.sale),
        ("created_at", ">=", page.since),
        ("created_at", "<", page.until),
    ):
        if value is not None:
            conditions.append((f"{column} {operator} ?", (value,)))
    for key, text in page.metadata.items():
        # A text by its value; a number, true or false as it stands in the till's JSON.
        path = f'$."{key}"'
        conditions.append(("(metadata ->> ? = ? OR metadata -> ? = ?)", (path, text, path, text)))
    if page.cursor is not None:
        conditions.append(("(created_at, client_transaction_id) < (?, ?)", page.cursor))
    where = " AND ".join(condition for condition, _ in conditions)
    parameters = tuple(value for _, values in conditions for value in values)
    found = transactions.select(db, where, parameters, page.limit + 1)
    rows = found[: page.limit]
    return rows, encode_cursor(rows[-1]) if len(found) > page.limit else None


def encode_cursor(transaction: Transaction) -> str:
    """Return the place after a transaction, as an opaque text."""
    return urlsafe_b64encode(f"{transaction.created_at} {transaction.client_transaction_id}".encode()).decode()


def decode_cursor(text: str) -> tuple[str, str]:
    """Read a cursor. Raise ValueError where it is none of ours."""
    try:
        created_at, identity = urlsafe_b64decode(text.encode("ascii")).decode("ascii").split(" ")
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise ValueError("is not a cursor that this list gave out") from error
    return created_at, identity
