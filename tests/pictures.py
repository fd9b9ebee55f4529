"""Draw the output of commands on a terminal as docs/pictures/*.svg (`python -m tests.pictures`)."""

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from xml.etree import ElementTree as Xml

from rich.console import Console
from rich.text import Text

from tests.cli import test_captures
from tests.rig.commands import posd_on_terminal
from tests.rig.counter import Counter, open_counter
from tests.rig.watch_screen import pictured

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COLUMNS = 88
#: Name of the picture -> command, and shown lines of the output.
COMMANDS: Mapping[str, tuple[tuple[str, ...], int]] = {
    "status": (("status", "--utc"), 30),
    "report": (("report", "--timezone", "UTC"), 37),
    "demo": (("demo", "--speed", "20"), 60),
}
#: Parts that differ between runs: ids, names of one run, times, days, numbers.
CHANGES = re.compile(
    r"uptime .*|/(?:tmp|dev/shm)/\S+|DEMO-\w+|\b[0-9a-f]{8}(?:-[0-9a-f-]+|\.\.\.)?"
    r"|\w+day\s\d+\s\w+\s\d{4}|\d+\s[A-Z][a-z]{2}\s|\d+|[─\s]+"
)


@contextmanager
def shop() -> Iterator[Counter]:
    """Yield a shop with two terminals and some payments of today. One payment runs at the terminal, and one payment is
    in doubt.
    """
    with TemporaryDirectory(prefix="posd-") as home, open_counter(Path(home), speed=1000.0) as counter:
        first, second = counter.serials
        for amount, serial in ((11.2, first), (25, second), (8.5, first)):
            paid = counter.charge(amount, serial)
            counter.ended(paid)
        counter.ended(counter.charge(8.5, first, type="void", original=paid))
        counter.ended(counter.charge(3, second, scenario="decline"))
        counter.charge(14.9, second, scenario="by-hand")
        doubt = counter.charge(12.5, first, scenario="lost-request")
        counter.until(lambda: counter.transaction(doubt)["next_step"] == "ask_person", "no person is asked")
        yield counter


def lines(name: str, socket: Path) -> Iterator[str]:
    """Yield the output lines of a picture's command, with the escape sequences of colours."""
    command, _ = COMMANDS[name]
    for line in posd_on_terminal(*command, socket=socket, columns=COLUMNS).written.splitlines():
        text = re.sub(r"\x1b\[[0-9;?]*[A-Zac-ln-z]", "", line)
        if not re.search("[⠀-⣿]", text):  # the spinner of a busy command
            yield text.rstrip()


def draw(name: str, socket: Path) -> str:
    """Return the picture of a command."""
    command, height = COMMANDS[name]
    shown = "\n".join(lines(name, socket)).strip().splitlines()[:height]
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi("\n".join([f"\x1b[1m$ posd {command[0]}\x1b[0m", *shown])))
    picture = console.export_svg(title=f"posd {name}", unique_id=f"posd-{name}")
    return re.sub(r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL)


def pictures() -> Iterator[tuple[str, str]]:
    """Yield the name of each picture, and a new drawing of the picture."""
    with shop() as counter:
        yield from ((name, draw(name, counter.socket)) for name in COMMANDS)
    with test_captures.shop() as counter:
        yield "watch-80x24", pictured(counter.socket, (80, 24))[1]


def words(picture: str) -> str:
    """Return the text of a picture, without line breaks and the parts that differ between runs."""
    shown: dict[str, str] = {}
    for text in Xml.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"):
        line = text.get("clip-path", "")
        shown[line] = shown.get(line, "") + "".join(text.itertext()) + " "
    return " ".join(CHANGES.sub(" ", "\n".join(shown.values())).split())


if __name__ == "__main__":
    for name, picture in pictures():
        (FOLDER / f"{name}.svg").write_text(picture, "utf-8")
