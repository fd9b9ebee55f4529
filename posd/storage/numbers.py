"""Numbers of rows (`seq`): each is given out once, also where the newest row goes.

The next one is above all that are in the table, and above what sqlite_sequence has of it. That is written where the
newest row is deleted (by a trigger) and where numbers are left out, and not for each row, as AUTOINCREMENT does.
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
    """Return the SQL expression of the number up to which all count as given out, in a table or not."""
    return f"coalesce((SELECT seq FROM {schema}.sqlite_sequence WHERE name = '{table}'), 0)"


@cache
def _newest(schema: str, table: str) -> str:
    return f"max(coalesce((SELECT max(rowid) FROM {schema}.{table}), 0), {given_out(table, schema)})"


def newest(db: sqlite3.Connection, table: str, schema: str = "main") -> int:
    """Return the highest number that was given out, whether its row is still there or not."""
    number: int = db.execute(f"SELECT {_newest(schema, table)}").fetchone()[0]
    return number


def go_on_above(db: sqlite3.Connection, table: str, number: int) -> None:
    """Give out no number up to this one any more."""
    if not db.execute("UPDATE main.sqlite_sequence SET seq = ? WHERE name = ?", (number, table)).rowcount:
        db.execute("INSERT INTO main.sqlite_sequence (name, seq) VALUES (?, ?)", (table, number))
