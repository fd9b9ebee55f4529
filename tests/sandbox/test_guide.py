"""docs/guides/testing.md. The till, the conftest.py and the tests of the page are in a folder, and pytest runs them as
a process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from posd.sandbox import Sandbox, SimulatedTerminal
from posd.simulator.scenario import CHOICE, payments, prints
from tests.rig.needs import needs

TEXT = (Path(__file__).parents[2] / "docs" / "guides" / "testing.md").read_text("utf-8")
#: The files of the page. Each file is a block that begins with the file's name.
FILES = dict(re.findall(r"^```(?:python|bash)\n# (\S+)\n(.*?)^```$", TEXT, re.DOTALL | re.MULTILINE))
#: Maximum duration of the page's programs, in seconds.
PATIENCE = 120

#: Code of the page's till -> faulty replacement, and tests of the page that find the fault.
MISTAKES = {
    "a new id for an open payment": (
        "    payment_id, amount = open_payment.read_text().split()\n",
        "    payment_id = uuid.uuid4()\n",
        {"test_a_payment_in_doubt_is_never_paid_again_under_a_new_id", "test_the_till_is_killed_in_the_middle"},
    ),
    "an uncertain payment is shown as not paid": (
        'return WORDS["ask_person"]',
        'return WORDS["new_id_ok"]',
        {"test_a_payment_in_doubt_is_never_paid_again_under_a_new_id"},
    ),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return the folder of a project with the files of the page."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def run_pytest(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run the tests of a project as its developer does. Every warning is an error."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-W", "error", "-p", "no:cacheprovider", f"--basetemp={folder}/temporary"],
        cwd=folder,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.slow  # each test of the page starts a shop of processes. test_sandbox.py tests the fixture
def test_the_tests_of_the_page_pass_with_its_till(folder: Path) -> None:
    done = run_pytest(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    count = FILES["test_till.py"].count("\ndef test_")
    assert count >= 6
    assert f"{count} passed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("right", "wrong", "found_by"), MISTAKES.values(), ids=MISTAKES)
def test_the_tests_of_the_page_fail_for_a_faulty_till(folder: Path, right: str, wrong: str, found_by: set[str]) -> None:
    assert FILES["till.py"].count(right) == 1
    (folder / "till.py").write_text(FILES["till.py"].replace(right, wrong), "utf-8")
    done = run_pytest(folder)
    assert done.returncode == 1, done.stdout + done.stderr
    assert set(re.findall(r"^FAILED test_till\.py::(\w+)", done.stdout, re.MULTILINE)) == found_by
    assert "--- the end of posd's log:" in done.stdout


@pytest.mark.slow
def test_a_strict_type_checker_accepts_the_files_of_the_page(folder: Path) -> None:
    checked = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", os.devnull, "."]
    done = subprocess.run(checked, cwd=folder, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs("curl", "jq")
@pytest.mark.slow
def test_the_script_for_other_languages_works(folder: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "sandbox.sh"],
        cwd=folder,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.stdout.splitlines() == ["declined", '{"status":"DECLINED","charged":false}'], done.stderr
    said = [line for line in done.stderr.splitlines() if line]
    assert said == ["posd has ended, and is started again", "stopped; nothing is left behind"]


def rows(after: str) -> list[list[str]]:
    """Return the rows of the table that begins with this text."""
    lines = TEXT[TEXT.index(after) :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_scenario_of_the_page_exists_with_its_amounts() -> None:
    for _, named, amounts, _ in rows("| situation |"):
        names = re.findall(r"`([\w:-]+)`", named)
        assert names
        shipped = [payments()[name].amount for name in names if not name.startswith(CHOICE)]
        assert ", ".join(filter(None, shipped)) == amounts
        assert {name.removeprefix(CHOICE) for name in names if name.startswith(CHOICE)} <= set(prints())


@pytest.mark.parametrize(
    ("table", "kind"), [("member of `posd_sandbox`", Sandbox), ("member of `posd_sandbox.terminal`", SimulatedTerminal)]
)
def test_the_fixture_has_everything_that_the_page_describes(table: str, kind: type) -> None:
    offered = {name for cells in rows(f"| {table} |") for name in re.findall(r"`(\w+)", cells[0])}
    assert len(offered) >= 6
    assert [name for name in sorted(offered) if not hasattr(kind, name)] in ([], ["directory", "serial"])
