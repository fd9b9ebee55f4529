"""The list of print jobs (local API, GET /print-jobs)."""

import sqlite3

from posd.printing import rows
from posd.printing.model import PrintJob
from posd.records.paging import Filters, encode_cursor, joined


class Page(Filters, frozen=True, kw_only=True):
    """What to list."""

    external_reference: str | None = None

    def index(self) -> str:
        """See `Filters.index`."""
        return "external_reference" if self.external_reference else super().index()


def read_page(db: sqlite3.Connection, page: Page) -> tuple[list[PrintJob], str | None]:
    """Return one page, newest first (`created_at`, then id), and the cursor of the next one."""
    conditions = page.conditions("print_job_id")
    if page.external_reference is not None:
        conditions.append(("external_reference = ?", (page.external_reference,)))
        if page.external_reference:
            conditions.append(("external_reference <> ''", ()))
    found = rows.select(db, page.index(), *joined(conditions), page.limit + 1)
    shown = found[: page.limit]
    more = len(found) > page.limit
    return shown, encode_cursor(shown[-1].created_at, shown[-1].print_job_id) if more else None
