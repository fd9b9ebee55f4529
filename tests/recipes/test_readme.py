"""The README's ten minutes: what it says to type, typed."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, read_until, started_posd

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
SECTION = README.partition("## A charge in Python\n")[2].partition("\n## ")[0]


def block(language: str) -> str:
    """Return the one block of that language in the section."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", SECTION, re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.mark.slow
def test_a_few_lines_charge_on_the_demo_that_goes_on(tmp_path: Path) -> None:
    program, lines = block("bash").split(), block("python")
    assert program == [".venv/bin/posd", "demo", "--keep"]
    assert len(lines.splitlines()) <= 14
    with started_posd(*program[1:], "--speed", "50", environment={"TMPDIR": str(tmp_path)}) as demo:
        try:
            told = read_until(demo, "export POSD_SOCKET=")
            socket = told.splitlines()[-1].partition("=")[2]
            for amount, last in (("11.20", "PAID"), ("9000.04", "NOT PAID"), ("9000.20", "PAID")):
                done = subprocess.run(
                    [sys.executable, "-"],
                    input=lines.replace('"11.20"', f'"{amount}"'),
                    env=os.environ | {"POSD_SOCKET": socket},
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                assert (done.returncode, done.stderr) == (0, ""), done.stderr
                assert done.stdout.splitlines()[-1] == last
        finally:
            demo.terminate()
            demo.communicate(timeout=PATIENCE)
