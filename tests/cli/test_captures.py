"""Screens of 80 by 24 and of 200 by 50 of a shop that has every kind of payment. No line is wider than the screen, and
important words are not broken.
"""

import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from rich.cells import cell_len

from posd.cli.app.connection import Api
from tests.rig.commands import posd_on_terminal
from tests.rig.counter import Counter, open_counter
from tests.rig.watch_screen import pictured

pytestmark = pytest.mark.slow

#: Ids and serials of the shop. The twins have the same first eight characters. The serials have the forms that vendors
#: use; the terminal `gone` does not reply.
NAMES = {
    "twin_1": "7f3c1f0e-0001-4000-8000-00000000000a",
    "twin_2": "7f3c1f0e-0002-4000-8000-00000000000b",
    "open": "aaaa0000-0000-4000-8000-000000000001",
    "doubt": "bbbb0000-0000-4000-8000-000000000002",
    "declined": "cccc0000-0000-4000-8000-000000000003",
    "long_serial": "P8-2026-ECUADOR-QUITO-0000000123",
    "gone": "N950S-UIO-MALL-EL-JARDIN-LOCAL-0042",
}
TWINS = (NAMES["twin_1"], NAMES["twin_2"])
BIG = 12345678.99
WATCHED = ("8.00", "12.50", "quarantined_event", "conflicting_final", "approval_unlikely", "missing_reference")
COMMANDS: dict[str, dict[str, list[str]]] = tomllib.loads(Path(__file__).with_name("captures.toml").read_text())


@contextmanager
def shop() -> Iterator[Counter]:
    """Run a daemon with terminals, one of them unreachable, and payments and print jobs of every kind."""
    gone = f'[[terminals]]\nserial = "{NAMES["gone"]}"\nbase_url = "https://127.0.0.1:9"\n'
    with (
        TemporaryDirectory(prefix="posd-") as home,
        open_counter(Path(home), NAMES["long_serial"], speed=1000.0, extra=gone) as counter,
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
        {"type": "charge", "amount": 3, "scenario": "decline", "identity": NAMES["declined"]},
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
    counter.charge(8, first, scenario="by-hand", identity=NAMES["open"])
    counter.charge(12.5, long, scenario="lost-acknowledgement-and-all", identity=NAMES["doubt"])


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
                arguments = command.format_map(NAMES | {"config": counter.daemon.config_file}).split()
                needed = words.get("words", []) + words.get("narrow" if columns == 80 else "wide", [])
                lines = posd_on_terminal(*arguments, socket=counter.socket, columns=columns).screen.splitlines()
                more = references if command.startswith("report") else ()
                check(command, lines, columns, {*(word.format_map(NAMES) for word in needed), *more})
                if "--utc" in command:
                    assert sum("(UTC" in line for line in lines) == 1  # the screen names the zone once
            seen, _ = pictured(counter.socket, (columns, height))
            assert len(seen) == height
            check("watch", seen, columns, {*WATCHED, "[ack]·card·bank·end" if columns == 80 else NAMES["long_serial"]})
