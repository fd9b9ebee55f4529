"""The commands and lines of the README and of the Python client's guide work as written."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from posd.client import PaymentStore, Posd
from tests.rig.commands import PATIENCE, read_until, started_posd

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
SECTION = README.partition("## A charge in Python\n")[2].partition("\n## ")[0]
TILL = (ROOT / "docs" / "guides" / "client.md").read_text("utf-8").partition("## A till\n")[2].partition("\n## ")[0]

pytestmark = pytest.mark.slow


def block(language: str, section: str = SECTION) -> str:
    """Return the only block of this language in a section."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", section, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture
def socket(tmp_path: Path) -> Iterator[str]:
    """Yield the till's socket of the demo that the README starts."""
    program = block("bash").split()
    assert program == [".venv/bin/posd", "demo", "--keep"]
    with started_posd(*program[1:], "--speed", "50", environment={"TMPDIR": str(tmp_path)}) as demo:
        try:
            yield read_until(demo, "export POSD_SOCKET=").splitlines()[-1].partition("=")[2]
        finally:
            demo.terminate()
            demo.communicate(timeout=PATIENCE)


def said(lines: str, amount: str, socket: str, directory: Path) -> list[str]:
    """Run the lines with another amount. Return their output."""
    assert '"11.20"' in lines
    done = subprocess.run(
        [sys.executable, "-"],
        input=lines.replace('"11.20"', f'"{amount}"'),
        env=os.environ | {"POSD_SOCKET": socket},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def test_the_lines_of_the_readme_charge_on_the_running_demo(socket: str, tmp_path: Path) -> None:
    lines = block("python")
    assert len(lines.splitlines()) <= 15
    for amount, words in (("11.20", "PAID 11.20"), ("9000.04", "NOT PAID"), ("9000.20", "PAID 9000.20")):
        *shown, last, booked = said(lines, amount, socket, tmp_path)
        assert (last, booked.startswith("(it is booked)")) == (words, words.startswith("PAID"))
        assert all("ait" in text or "card" in text or "Do not charge again" in text for text in shown), shown
        assert PaymentStore(tmp_path / "open-payments").open_payments() == []


def test_the_till_of_the_guide_settles_its_open_payments_first(socket: str, tmp_path: Path) -> None:
    lines, store = block("python", TILL), PaymentStore(tmp_path / "open-payments")
    with Posd(socket, store=store.save) as posd:
        posd.charge(uuid4(), "5.00").outcome()  # the till was killed after this call
    one_sale = re.sub(r'sale="[^"]*"', "sale=str(id)", lines)
    assert one_sale != lines
    for amount, ends in (("11.20", ["PAID 5.00", "PAID 11.20"]), ("9000.04", ["NOT PAID"])):
        told = said(one_sale, amount, socket, tmp_path)
        assert [text for text in told if text.startswith(("PAID", "NOT PAID"))] == ends
        assert sum(text.startswith("(book it, by the id) ") for text in told) == len(ends) - (ends == ["NOT PAID"])
        assert store.open_payments() == []
