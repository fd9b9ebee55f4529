"""Each recipe has a test and a line in the index, and the guide explains every word that a till can receive."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from posd.base.problems import StartStep
from posd.payments.lifecycle import Status
from posd.payments.model import NextStep, Result
from posd.records.model import Phase
from tests.recipes.running import RECIPES, TOOLS
from tests.rig.needs import needs

GUIDE = (RECIPES.parent / "integration.md").read_text("utf-8")
FILES = sorted(path.name for path in RECIPES.iterdir() if path.is_file() and path.suffix != ".md")
TESTS = "".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py") if path != Path(__file__))


@pytest.mark.parametrize("name", FILES)
def test_each_recipe_is_tested_and_listed_and_can_be_run(name: str) -> None:
    assert f'"{name}"' in TESTS
    assert f"[{name}]({name})" in (RECIPES / "README.md").read_text("utf-8")
    assert Path(name).suffix in TOOLS
    assert name.endswith((".go", ".java", ".cs")) or (RECIPES / name).stat().st_mode & 0o111


@pytest.mark.parametrize("name", FILES)
def test_a_failing_program_never_means_not_paid(name: str) -> None:
    head = (RECIPES / name).read_text("utf-8")[:900]
    says = dict(re.findall(r"(\d) ([^,.;]+)", head.partition("xit code: ")[2].partition("\n\n")[0]))
    assert says.keys() <= set(re.findall(r"^\| (\d) \|", (RECIPES / "README.md").read_text("utf-8"), re.MULTILINE))
    assert says.get("1") in (None, "or 2 usage or a fault of this program: they say nothing")
    assert [code for code, words in says.items() if words.startswith(("not ", "nothing "))] in ([], ["3"])


@pytest.mark.slow  # the test is slow, because the type checker reads the client and its libraries
def test_the_recipes_in_python_pass_a_strict_type_checker(tmp_path: Path) -> None:
    files = [str(RECIPES / name) for name in FILES if name.endswith(".py")]
    options = ["--strict", "--config-file", "/dev/null", "--cache-dir", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, *files], capture_output=True, text=True, timeout=250, check=False
    )
    assert done.returncode == 0, done.stdout


@needs("java", "javac")
@pytest.mark.slow
def test_the_recipe_in_java_starts_from_its_source(tmp_path: Path) -> None:
    done = subprocess.run(
        ["java", RECIPES / "Charge.java"],
        env=os.environ | {"TILL_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert (done.returncode, done.stderr) == (2, "usage: java Charge.java AMOUNT\n")


@pytest.mark.parametrize("word", [*Status, *Phase, *Result, *NextStep, *StartStep])
def test_the_guide_explains_each_word(word: str) -> None:
    final = word in {"APPROVAL", "DECLINED", "TERMINAL_CANCELED", "TERMINAL_REJECTED"}
    assert final or f"`{word}`" in GUIDE  # for these outcomes tills use the result, not the status
