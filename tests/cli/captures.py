"""Captures of screens of two sizes. Commands for people run on pseudo-terminals, with a shop that has every kind of
payment.

`python -m tests.cli.captures DIRECTORY` writes each capture into a file for viewing.
"""

import asyncio
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from posd.cli.app.connection import Api
from tests.cli.processes import posd_on_terminal
from tests.cli.watch.terminal import seen
from tests.support.counter import Counter

#: Columns and lines.
SIZES = ((80, 24), (200, 50))
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

#: Name -> command line. {config} is the configuration file of the shop.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "list": ("list", "--totals", "--utc"),
    "list-attention": ("list", "--attention"),
    "show": ("show", TWINS[0]),
    "show-doubt": ("show", DOUBT),
    "terminals": ("terminals",),
    "print-jobs": ("print-jobs",),
    "report": ("report", "--timezone", "UTC"),
    "quarantine": ("quarantine", "--utc"),
    "clock": ("clock",),
    "status": ("status",),
    "doctor": ("--config", "{config}", "doctor"),
    "explain": ("explain", "in_doubt"),
    "several": ("show", "7f3c1f0e"),
    "help": ("--help",),
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


def capture(counter: Counter, arguments: tuple[str, ...], columns: int) -> list[str]:
    """Return a command's output on a screen of this width, without trailing spaces."""
    words = [word.format(config=counter.config) for word in arguments]
    seen = posd_on_terminal(*words, socket=counter.socket, columns=columns)
    return [line.rstrip() for line in seen.screen.splitlines()]


def watch(counter: Counter, columns: int, height: int) -> tuple[list[str], str]:
    """Return the complete screen of `posd watch` as lines and as a picture."""

    async def look() -> tuple[list[str], str]:
        async with seen(counter.socket, (columns, height)) as view:
            await view.shows("in_doubt")
            await view.shows("% approved")
            lines = await view.shows("q quit")
            picture = view.app.export_screenshot(title="posd watch")
            return [line.rstrip() for line in lines], re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)

    return asyncio.run(look())


def main() -> None:
    """Write all captures into the directory of the command line."""
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    with shop() as counter:
        for columns, height in SIZES:
            screens = {name: capture(counter, words, columns) for name, words in COMMANDS.items()}
            screens["watch"], _ = watch(counter, columns, height)
            for name, lines in screens.items():
                (directory / f"{name}-{columns}x{height}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
