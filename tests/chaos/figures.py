"""What happened, in numbers, as the ledgers and the database tell it."""

import sqlite3
from collections import Counter
from contextlib import closing

from tests.chaos.books import Books, cases, delivered


def figures(books: Books) -> dict[str, int]:
    """Count what happened, as the ledgers and the database tell it."""
    known = cases(books)
    attempts = [line for ledger in books.terminals.values() for line in ledger if line["kind"] == "attempt"]
    times = Counter(line["event_id"] for line in delivered(books.terminals.values()))
    with closing(sqlite3.connect(books.database)) as db:
        verdicts = dict(db.execute("SELECT verdict, count(*) FROM events GROUP BY verdict"))
        reasons = dict(db.execute("SELECT reason, count(DISTINCT id) FROM changes GROUP BY reason"))
        doubts = db.execute("SELECT count(DISTINCT id) FROM changes WHERE phase = 'in_doubt'").fetchone()[0]
    shown = [case.shown for case in known.values() if case.shown is not None]
    results = Counter(document["outcome"]["result"] for document in shown if document["outcome"])
    return {
        **{f"payments {result}": count for result, count in sorted(results.items())},
        "payments open at the end": sum(document["phase"] != "final" for document in shown),
        "payments charged": sum(bool(case.charges) for case in known.values()),
        "payments of bad days": len(books.days),
        "payments whose terminal said two different ends": sum(
            "conflicting_final" in it.attention for it in known.values()
        ),
        "payments that were in doubt": doubts,
        "outcomes proved not started": reasons.get("proof", 0),
        "outcomes corrected": sum("outcome_corrected" in case.attention for case in known.values()),
        "events stored": sum(verdicts.values()),
        "events out of order": verdicts.get("late", 0) + verdicts.get("after_final", 0),
        "events delivered again": sum(count - 1 for count in times.values()),
        "deliveries that failed": sum(line["retry_in_seconds"] is not None for line in attempts),
        "changes in the feed": len(books.feed),
    }
