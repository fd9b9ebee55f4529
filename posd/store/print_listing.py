"""The list of print jobs: filters, order, and a cursor that survives inserts (local API, GET /print-jobs)."""

import binascii
import sqlite3
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import msgspec

from posd.core.printing import PrintJob
from posd.core.transactions import Phase
from posd.store import print_jobs


class Page(msgspec.Struct, frozen=True):
    """What to list; times are as stored."""

    limit: int
    phase: Phase | None = None
    open: bool = False
    terminal: str | None = None
    external_reference: str | None = None
    attention: bool = False
    since: str | None = None
    until: str | None = None
    cursor: tuple[str, str] | None = None


def read_page(db: sqlite3.Connection, page: Page) -> tuple[list[PrintJob], str | None]:
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
        ("external_reference", "=", page.external_reference),
        ("created_at", ">=", page.since),
        ("created_at", "<", page.until),
    ):
        if value is not None:
            conditions.append((f"{column} {operator} ?", (value,)))
    if page.cursor is not None:
        conditions.append(("(created_at, print_job_id) < (?, ?)", page.cursor))
    where = " AND ".join(condition for condition, _ in conditions)
    parameters = tuple(value for _, values in conditions for value in values)
    found = print_jobs.select(db, where, parameters, page.limit + 1)
    rows = found[: page.limit]
    return rows, encode_cursor(rows[-1]) if len(found) > page.limit else None


def encode_cursor(job: PrintJob) -> str:
    """Return the place after a job, as an opaque text."""
    return urlsafe_b64encode(f"{job.created_at} {job.print_job_id}".encode()).decode()


def decode_cursor(text: str) -> tuple[str, str]:
    """Read a cursor. Raise ValueError where it is none of ours."""
    try:
        created_at, identity = urlsafe_b64decode(text.encode("ascii")).decode("ascii").split(" ")
    except (binascii.Error, UnicodeError, ValueError) as error:
        raise ValueError("is not a cursor that this list gave out") from error
    return created_at, identity
