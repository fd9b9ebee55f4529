"""Numbers of rows (`seq`): each is used once, also after the newest row is removed.

The next number exceeds all in the table and the one in sqlite_sequence. A trigger writes sqlite_sequence when the
newest row is deleted; skipping numbers writes it as well. AUTOINCREMENT would write it for each row.
"""
# ruff: noqa: S608 - what is put into SQL here are names of tables

import sqlite3
from functools import cache


@cache
def following(table: str) -> str:
    """Return the SQL expression of the next number of a table."""
    return f"1 + {_newest('main', table)}"


@cache
def given_out(table: str, schema: str = "main") -> str:
    """Return the SQL expression of the highest number that is recorded as used outside the table."""
    return f"coalesce((SELECT seq FROM {schema}.sqlite_sequence WHERE name = '{table}'), 0)"


@cache
def _newest(schema: str, table: str) -> str:
    return f"max(coalesce((SELECT max(rowid) FROM {schema}.{table}), 0), {given_out(table, schema)})"


def newest(db: sqlite3.Connection, table: str, schema: str = "main") -> int:
    """Return the highest number that was used, whether its row still exists or not."""
    number: int = db.execute(f"SELECT {_newest(schema, table)}").fetchone()[0]
    return number


def advance_sequence(db: sqlite3.Connection, table: str, number: int) -> None:
    """Reserve all numbers up to `number`."""
    if not db.execute("UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?", (number, table)).rowcount:
        db.execute("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
