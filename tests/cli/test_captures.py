"""Screens of 80 by 24 and of 200 by 50 of a shop that has every kind of payment. No line is wider than the screen, and
important words are not broken.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.cells import cell_len

from posd.cli.app.connection import Api
from tests.cli.processes import posd_on_terminal
from tests.cli.watch.terminal import pictured
from tests.support.counter import Counter

pytestmark = pytest.mark.slow

#: Serials in the forms that vendors use.
LONG_SERIAL = "P8-2026-ECUADOR-QUITO-0000000123"
#: Serial of a terminal that does not reply. It is longer.
GONE = "N950S-UIO-MALL-EL-JARDIN-LOCAL-0042"
#: Two payments with the same first eight characters of their ids.
TWINS = ("7f3c1f0e-0001-4000-8000-00000000000a", "7f3c1f0e-0002-4000-8000-00000000000b")
BIG = 12345678.99
OPEN = "aaaa0000-0000-4000-8000-000000000001"
DOUBT = "bbbb0000-0000-4000-8000-000000000002"
DECLINED = "cccc0000-0000-4000-8000-000000000003"

TYPES = ("12345678.99", "!quarantined_event", "!conflicting_final", "not_started", "declined", "canceled", "capture")
MARKS = ("!approval_unlikely", "!missing_reference", "12.50")
SHOWN = (TWINS[0], "approved", "11.20", "refund", "not_started")
DOUBTFUL = (DOUBT, "in_doubt", "search_not_confirmed")
WATCHED = ("8.00", "12.50", "quarantined_event", "conflicting_final", "approval_unlikely", "missing_reference")
#: Command line, words that must not be broken at 80 columns, and words at 200 columns. {config} is the configuration of
#: the shop.
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "list --totals --utc": (
        (*TYPES, "7f3c1f0e-0001", "7f3c1f0e-0002", "aaaa0000", "bbbb0000", "cccc0000"),
        (*TYPES, *TWINS, OPEN, DOUBT, DECLINED, LONG_SERIAL),
    ),
    "list --attention": ((*MARKS, "bbbb0000"), (*MARKS, DOUBT)),
    f"show {TWINS[0]}": (SHOWN, SHOWN),
    f"show {DOUBT}": (DOUBTFUL, DOUBTFUL),
    "terminals": (("SN-0001", "aaaa0000", "bbbb0000"), ("SN-0001", OPEN, DOUBT)),
    "print-jobs": (("7f3c1f0e", "receipt-1042"), (TWINS[1], "receipt-1042")),
    "report --timezone UTC": (("12345678.99", DECLINED), ("12345678.99", DECLINED)),
    "quarantine --utc": (("127.0.0.1",), ("127.0.0.1",)),
    "clock": ((), ()),
    "status": (("SN-0001",), ("SN-0001", LONG_SERIAL, GONE)),
    "--config {config} doctor": (("FAILURE", "SN-0001:"), ("FAILURE", "SN-0001:")),
    "explain in_doubt": ((), ()),
    "show 7f3c1f0e": ((), ()),
    "--help": (("charge", "doctor"), ("charge", "doctor")),
}


@contextmanager
def shop() -> Iterator[Counter]:
    """Run a daemon with terminals, one of them unreachable, and payments and print jobs of every kind."""
    gone = f'[[terminals]]\nserial = "{GONE}"\nbase_url = "http://127.0.0.1:9"\n'
    with (
        TemporaryDirectory(prefix="posd-") as home,
        Counter(Path(home), terminals=2, speed=1000.0, extra=gone, also=[LONG_SERIAL]) as counter,
    ):
        _pay(counter)
        yield counter


def _pay(counter: Counter) -> None:
    first, second, long = counter.serials
    for number, (identity, serial) in enumerate(zip(TWINS, (first, long), strict=True)):
        counter.charge((11.2, BIG)[number], serial, identity=identity, sale=f"2026-11-20/till-3/{number}")
        counter.ended(identity)
    reserved = counter.charge(100, second, type="pre-auth")
    counter.ended(reserved)
    for request in (
        {"type": "capture", "original": reserved, "amount": 80},
        {"type": "refund", "original": TWINS[0], "amount": 1.5},
        {"type": "charge", "amount": 7, "scenario": "approval-without-reference"},
        {"type": "charge", "amount": 9, "scenario": "approval-after-decline"},
        {"type": "charge", "amount": 5, "scenario": "amount-differs"},
        {"type": "charge", "amount": 3, "scenario": "decline", "identity": DECLINED},
        {"type": "charge", "amount": 4, "scenario": "cancel-by-cardholder"},
        {"type": "charge", "amount": 6, "scenario": "refused-400"},
        {"type": "charge", "amount": 2, "scenario": "event-not-json"},
    ):
        counter.ended(counter.charge(serial=second, **request))
    for job, reference in (("receipt-1042", "ticket 1042"), (TWINS[1], "2026-11-20/till-3/1042")):
        with Api(counter.socket) as api:
            api.put(
                f"/print-jobs/{job}", {"terminal": second, "external_reference": reference, "document": {"text": "x"}}
            )
    counter.charge(8, first, scenario="by-hand", identity=OPEN)
    counter.charge(12.5, long, scenario="lost-acknowledgement-and-all", identity=DOUBT)


def check(name: str, lines: list[str], columns: int, needed: set[str]) -> None:
    assert [line for line in lines if cell_len(line.rstrip()) > columns] == [], name
    words = {word for line in lines for word in re.split(r"[\s│]+", line)}
    assert needed - words == set(), "\n".join([name, *lines])


def test_every_screen_fits_and_has_the_important_words() -> None:
    with shop() as counter:
        outcomes = [payment["outcome"] or {} for payment in counter.get("/transactions")["transactions"]]
        references = {outcome["transaction_reference"] for outcome in outcomes if outcome.get("transaction_reference")}
        for columns, height in ((80, 24), (200, 50)):
            for command, words in COMMANDS.items():
                arguments = command.format(config=counter.config).split()
                lines = posd_on_terminal(*arguments, socket=counter.socket, columns=columns).screen.splitlines()
                more = references if command.startswith("report") else ()
                check(command, lines, columns, {*words[columns > 80], *more})
                if "--utc" in command:
                    assert sum("(UTC" in line for line in lines) == 1  # the screen names the zone once
            seen, _ = pictured(counter.socket, (columns, height))
            assert len(seen) == height
            check("watch", seen, columns, {*WATCHED, "[ack]·card·bank·end" if columns == 80 else LONG_SERIAL})
