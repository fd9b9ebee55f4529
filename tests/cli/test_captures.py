"""Screens of 80 by 24 and of 200 by 50. No line is wider than the screen, and important words are not broken."""

import re

import pytest
from rich.cells import cell_len

from tests.cli.captures import COMMANDS, DECLINED, DOUBT, OPEN, SIZES, TWINS, capture, shop, watch

pytestmark = pytest.mark.slow

#: Name -> words that must not be broken, at 80 columns and at 200 columns.
WORDS = {
    "list": (
        ("7f3c1f0e-0001", "7f3c1f0e-0002", "aaaa0000", "bbbb0000", "cccc0000"),
        (*TWINS, OPEN, DOUBT, DECLINED, "P8-2026-ECUADOR-QUITO-0000000123"),
    ),
    "list-attention": (("bbbb0000",), (DOUBT,)),
    "show": ((TWINS[0],), (TWINS[0],)),
    "show-doubt": ((DOUBT,), (DOUBT,)),
    "terminals": (("SN-0001", "aaaa0000", "bbbb0000"), ("SN-0001", OPEN, DOUBT)),
    "print-jobs": (("7f3c1f0e", "receipt-1042"), (TWINS[1], "receipt-1042")),
    "status": (("SN-0001",), ("SN-0001", "P8-2026-ECUADOR-QUITO-0000000123", "N950S-UIO-MALL-EL-JARDIN-LOCAL-0042")),
    "doctor": (("FAILURE", "SN-0001:"), ("FAILURE", "SN-0001:")),
    "report": (("12345678.99", DECLINED), ("12345678.99", DECLINED)),
    "quarantine": (("127.0.0.1",), ("127.0.0.1",)),
    "watch": (("8.00", "12.50", "[ack]·card·bank·end"), ("8.00", "12.50", "P8-2026-ECUADOR-QUITO-0000000123")),
    "help": (("charge", "doctor"), ("charge", "doctor")),
}
#: Words that must not be broken at both widths.
ALWAYS = {
    "list": (
        "12345678.99",
        "!quarantined_event",
        "!conflicting_final",
        "not_started",
        "declined",
        "canceled",
        "capture",
    ),
    "list-attention": ("!approval_unlikely", "!missing_reference", "12.50"),
    "show": ("approved", "11.20", "refund", "not_started"),
    "show-doubt": ("in_doubt", "search_not_confirmed"),
    "watch": ("quarantined_event", "conflicting_final", "approval_unlikely", "missing_reference"),
}


def check(name: str, lines: list[str], columns: int, needed: set[str]) -> None:
    assert [line for line in lines if cell_len(line) > columns] == [], name
    words = {word for line in lines for word in re.split(r"[\s│]+", line)}
    assert needed - words == set(), "\n".join([name, *lines])


def test_every_screen_fits_and_has_the_important_words() -> None:
    with shop() as counter:
        outcomes = [payment["outcome"] or {} for payment in counter.get("/transactions")["transactions"]]
        references = {outcome["transaction_reference"] for outcome in outcomes if outcome.get("transaction_reference")}
        for columns, height in SIZES:
            for name, command in COMMANDS.items():
                needed = {*WORDS.get(name, ((), ()))[columns > 80], *ALWAYS.get(name, ())}
                lines = capture(counter, command, columns)
                check(name, lines, columns, needed | (references if name == "report" else set()))
                if name in ("list", "quarantine"):
                    assert sum("(UTC" in line for line in lines) == 1  # the screen names the zone once
            seen, _ = watch(counter, columns, height)
            assert len(seen) == height
            check("watch", seen, columns, {*WORDS["watch"][columns > 80], *ALWAYS["watch"]})
