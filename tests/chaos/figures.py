"""What happened, in numbers, as the ledgers and the database tell it."""

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing

from tests.chaos.books import Books, Case, cases, delivered


def figures(books: Books) -> dict[str, int]:
    """Count what happened, as the ledgers and the database tell it."""
    known = cases(books)
    attempts = [line for ledger in books.terminals.values() for line in ledger if line["kind"] == "attempt"]
    dropped = [line for ledger in books.terminals.values() for line in ledger if line["kind"] == "dropped"]
    doubled: dict[str, int] = defaultdict(int)
    for line in delivered(books.terminals.values()):
        doubled[line["event_id"]] += 1
    with closing(sqlite3.connect(books.database)) as db:
        verdicts = dict(db.execute("SELECT verdict, count(*) FROM events GROUP BY verdict"))
        reasons = dict(db.execute("SELECT reason, count(DISTINCT id) FROM changes GROUP BY reason"))
        doubts = db.execute("SELECT count(DISTINCT id) FROM changes WHERE phase = 'in_doubt'").fetchone()[0]
        refused = db.execute("SELECT count(*) FROM quarantine").fetchone()[0]
        by_search = db.execute(
            "SELECT count(*) FROM transactions WHERE json_extract(outcome, '$.evidence[0].kind') = 'search'"
        ).fetchone()[0]
    shown = [case for case in known.values() if case.shown is not None]
    results = Counter(case.shown["outcome"]["result"] for case in shown if case.shown and case.shown["outcome"])
    return {
        **{f"payments {result}": count for result, count in sorted(results.items())},
        "payments open at the end": sum(case.shown["phase"] != "final" for case in shown if case.shown),
        "of these in attention": sum(
            case.shown["phase"] != "final" and bool(case.attention) for case in shown if case.shown
        ),
        "payments charged": sum(bool(case.charges) for case in known.values()),
        "charged more than once by a terminal with two ends": sum(len(case.charges) > 1 for case in known.values()),
        "charges that a terminal hid or denied": sum(bool(case.charges) and not _approved(case) for case in shown),
        "of these in attention or closed by the person": sum(
            bool(case.charges) and not _approved(case) and (bool(case.attention) or case.id in books.resolved)
            for case in shown
        ),
        "payments of bad days": len(books.days),
        "payments whose terminal said two different ends": sum("conflicting_final" in case.attention for case in shown),
        "payments that were in doubt": doubts,
        "payments forgotten by a terminal": sum(
            bool(case.starts) and not case.finals and case.starts[0]["runs"] for case in known.values()
        ),
        "outcomes first told by a search": by_search,
        "outcomes proved not started": reasons.get("proof", 0),
        "of these forgotten by a terminal": sum(
            bool(case.starts)
            and not case.finals
            and any(item["kind"] == "search" for item in case.shown["outcome"]["evidence"])
            for case in shown
            if case.shown and case.shown["outcome"] and case.shown["outcome"]["result"] == "not_started"
        ),
        "outcomes corrected": sum("outcome_corrected" in case.attention for case in shown),
        "sales refused to a second till": sum(
            any(line["kind"] == "problem" and line["code"] == "sale_conflict" for line in case.till)
            for case in known.values()
        ),
        "aborts by tills": sum(line["kind"] == "abort" for ledger in books.tills.values() for line in ledger),
        "events stored": sum(verdicts.values()),
        "events out of order": verdicts.get("late", 0) + verdicts.get("after_final", 0),
        "events delivered again": sum(count - 1 for count in doubled.values()),
        "deliveries that failed": sum(line["retry_in_seconds"] is not None for line in attempts),
        "events given up by terminals": len(dropped),
        "callbacks refused": refused,
        "changes in the feed": len(books.feed),
    }


def _approved(case: Case) -> bool:
    """Whether posd says that it was approved."""
    outcome = case.shown and case.shown["outcome"]
    return bool(outcome) and outcome["result"] == "approved"
