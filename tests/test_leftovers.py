"""The suite finds what a test leaves behind, says whose it was, ends it, and fails that test alone."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Tests that leave things behind, and tests beside them that do not.
TESTS = """
import socket
import subprocess
import tempfile

import pytest

SLEEP = ["sleep", "600"]
kept = []


@pytest.fixture(scope="module")
def shared():
    process = subprocess.Popen(SLEEP)
    yield process
    process.kill()
    process.wait()


def test_before(shared):
    assert shared.poll() is None


def test_skipped_with_a_process():
    kept.append(subprocess.Popen(SLEEP))
    pytest.skip("something is missing")


def test_failed_in_the_shared_one(shared):
    raise AssertionError("on purpose")


def test_after(shared):
    assert shared.poll() is None


def test_a_process_of_its_own_that_is_ended():
    with subprocess.Popen(SLEEP) as process:
        process.kill()
"""

HELD = """
import pathlib
import socket
import tempfile

kept = []


def test_a_socket_and_a_file():
    kept.append(socket.create_server(("127.0.0.1", 0)))
    (pathlib.Path(tempfile.gettempdir()) / "forgotten").touch()


def test_at_the_end():
    pass
"""


ENDING = """
import threading


def test_a_thread_that_is_about_to_end():
    threading.Timer(0.3, lambda: None).start()
"""


def results(directory: Path, text: str) -> tuple[dict[str, str], str]:
    """Run these tests with the suite's own settings; return how each ended, and what was said."""
    file = directory / "test_of_leftovers.py"
    file.write_text(text)
    options = ("-n", "0", "-v", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(directory))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, str(file)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TESTS_RUN"))},
        capture_output=True,
        text=True,
        check=False,
    )
    found: dict[str, str] = {}
    for name, word in re.findall(r"::(test_\w+) (PASSED|FAILED|ERROR|SKIPPED)", done.stdout):
        found[name] = f"{found[name]}, {word}" if name in found else word
    assert found, done.stdout + done.stderr
    return found, done.stdout + done.stderr


def test_a_process_that_a_skipped_test_leaves_is_its_fault_alone(tmp_path: Path) -> None:
    found, said = results(tmp_path, TESTS)
    assert found == {
        "test_before": "PASSED",
        "test_skipped_with_a_process": "SKIPPED, ERROR",
        "test_failed_in_the_shared_one": "FAILED",
        "test_after": "PASSED",
        "test_a_process_of_its_own_that_is_ended": "PASSED",
    }
    assert re.search(r"left behind:\nprocess \d+: sleep 600", said)


def test_what_is_still_held_at_the_end_of_a_file_is_named_with_the_test_that_began_it(tmp_path: Path) -> None:
    found, said = results(tmp_path, HELD)
    assert found == {"test_a_socket_and_a_file": "PASSED", "test_at_the_end": "PASSED, ERROR"}
    for what in ("descriptor ", "file "):
        (line,) = {line for line in said.splitlines() if line.startswith(what)}  # with CI set, it is said twice
        assert line.endswith("seen first after test_of_leftovers.py::test_a_socket_and_a_file")


def test_a_thread_that_ends_by_itself_is_waited_for(tmp_path: Path) -> None:
    """A closed database says that it is closed before its thread has returned."""
    found, said = results(tmp_path, ENDING)
    assert found == {"test_a_thread_that_is_about_to_end": "PASSED"}, said
