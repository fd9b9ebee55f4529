"""Write the files of the tables: `python -m tests.vectors.make`. Files of `found` are left alone."""

from collections.abc import Iterator

from tests.vectors.case import HERE, Case
from tests.vectors.tables import (
    callbacks,
    error_replies,
    event_bytes,
    event_fields,
    event_words,
    events,
    print_replies,
    print_webhooks,
    requests,
    search_replies,
    sequence_finals,
    sequence_orders,
    sequence_starts,
    start_replies,
)

TABLES = (
    events,
    event_fields,
    event_bytes,
    event_words,
    start_replies,
    error_replies,
    search_replies,
    print_webhooks,
    print_replies,
    sequence_orders,
    sequence_finals,
    sequence_starts,
    callbacks,
    requests,
)


def cases() -> Iterator[Case]:
    """Yield every vector of the tables."""
    for table in TABLES:
        yield from table.cases()


def main() -> None:
    """Write all files anew, and remove those that no table has any more."""
    wanted = {HERE / case.path: case for case in cases()}
    for kind in {case.kind for case in wanted.values()}:
        (HERE / kind).mkdir(exist_ok=True)
        for path in (HERE / kind).glob("*.json"):
            if path not in wanted:
                path.unlink()
    for path, case in wanted.items():
        path.write_text(case.dump(), "ascii")
    print(f"{len(wanted)} vectors")


if __name__ == "__main__":
    main()
