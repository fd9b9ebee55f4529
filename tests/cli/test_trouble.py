"""Faults of posd during a wait are no outcome: the command goes on waiting, and a lasting fault leaves it open (exit
4).
"""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.documents import ID, answer, attention, outcome, transaction
from tests.cli.print_documents import COMPLETED, JOB, print_job
from tests.cli.processes import PATIENCE, posd
from tests.cli.stub import Answer, Stub, problem

FULL = problem(503, "storage_unavailable", "the disk is full")
FAULT = problem(500, "internal_error", "a fault")
GONE = problem(404, "not_found", "no such payment", ',"never_started":true')
FOREIGN = Answer(200, b"<html>", "text/html")

ACTIVE = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED", next_step="wait")
RUNS = answer(ACTIVE, 201)
APPROVED = transaction(outcome=outcome("approved", {"kind": "event", "event_id": "e-1"}), next_step="done")
END = Answer(200, b"event: outcome\ndata: {}\n\n", "text/event-stream")
CHARGE = ("charge", "5", "--id", ID)
AWAIT = ("await", ID)
PRINT = ("print", __file__, "--id", JOB)
NO_MORE = "Do not start this payment again before you know its outcome."
NO_PRINT = "Do not print it again under another id before you know the result."


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """A wait leaves its reading thread behind; a command's process ends with it, a test's does not."""
    yield
    for thread in threading.enumerate():
        if "(_read)" in thread.name:
            thread.join(PATIENCE)


#: a waiting command -> the responses before the fault.
WAITING = {CHARGE: [RUNS], AWAIT: [RUNS], PRINT: [answer(print_job(), 201)]}


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", WAITING, ids=lambda command: command[0])
@pytest.mark.parametrize("trouble", [FULL, FAULT], ids=["full", "fault"])
def test_an_end_is_waited_for_over_trouble_that_passes(
    tmp_path: Path, command: tuple[str, ...], trouble: Answer
) -> None:
    script = [RUNS, trouble, answer(ACTIVE), trouble, answer(ACTIVE), END, trouble, answer(APPROVED)]
    if command is PRINT:
        script = [*WAITING[PRINT], trouble, trouble, answer(print_job(), 202), trouble, answer(COMPLETED)]
    with Stub(tmp_path / "s", script):
        done = posd(*command, config=tmp_path / "none.toml", socket=tmp_path / "s")
    assert done.returncode == 0, done.stderr
    assert (
        f"posd does not answer; waiting for it (the {'print job' if command is PRINT else 'payment'} goes on): "
        in done.stdout
    )
    assert "posd is back" in done.stdout


@pytest.mark.quick(2)
@pytest.mark.parametrize("command", WAITING, ids=lambda command: command[0])
@pytest.mark.parametrize(
    ("trouble", "words"),
    [(FAULT, "a fault"), (GONE, "no such payment"), (FOREIGN, "is not posd's")],
    ids=["fault", "gone", "foreign"],
)
def test_trouble_that_stays_leaves_it_open(
    tmp_path: Path, command: tuple[str, ...], trouble: Answer, words: str
) -> None:
    with Stub(tmp_path / "s", [*WAITING[command], *[trouble] * 100]):
        done = posd(*command, config=tmp_path / "none.toml", socket=tmp_path / "s")
    assert done.returncode == 4, done.stderr
    for each in (words, "Its outcome is not known", NO_PRINT if command is PRINT else NO_MORE):
        assert each in done.stderr


@pytest.mark.parametrize("trouble", [FULL, FAULT, FOREIGN], ids=["full", "fault", "foreign"])
def test_what_cannot_be_looked_at_is_not_taken_for_what_failed(tmp_path: Path, trouble: Answer) -> None:
    with Stub(tmp_path / "s", [trouble] * 3):
        done = posd(*AWAIT, socket=tmp_path / "s")
        program = posd(*AWAIT, "--json", socket=tmp_path / "s")
        printed = posd("print-jobs", JOB, "--wait", socket=tmp_path / "s")
    assert (done.returncode, program.returncode, printed.returncode) == (4, 4, 4)
    assert "Its outcome is not known" in done.stderr
    assert f"posd await {ID}" in done.stderr
    assert "Do not start this transaction again before you know its outcome." in done.stderr
    assert NO_PRINT in printed.stderr


def test_a_payment_that_posd_does_not_know_is_refused_and_one_of_no_posd_unreachable(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [GONE, problem(503, "draining", "stopping")]):
        unknown = posd(*AWAIT, socket=tmp_path / "s")
        stopping = posd(*AWAIT, socket=tmp_path / "s")
    assert unknown.returncode == 1
    assert unknown.stderr == "posd: no such payment\n  more about it: posd explain not_found\n"
    assert stopping.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "left", "code"),
    [
        (AWAIT, {"result": "approved"}, 0),
        (AWAIT, {"result": "declined"}, 1),
        (AWAIT, {"result": "of a newer posd"}, 4),
        (CHARGE, {"result": "approved"}, 4),
        (("print-jobs", JOB, "--wait"), {"print_status": "COMPLETED"}, 0),
        (("print-jobs", JOB, "--wait"), {"print_status": None}, 1),
    ],
    ids=lambda value: " ".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_who_waits_for_what_is_removed_hears_how_it_ended(
    tmp_path: Path, arguments: tuple[str, ...], left: dict[str, str | None], code: int
) -> None:
    """Of a start it stays open: whether it is for the same sale is not known any more."""
    fields = "," + json.dumps(left).strip("{}")
    with Stub(tmp_path / "s", [problem(410, "pruned", "used before; it ended so", fields)] * 2):
        done = posd(*arguments, socket=tmp_path / "s")
        program = posd(*arguments, "--json", socket=tmp_path / "s")
    assert (done.returncode, program.returncode) == (code, code)
    assert "used before; it ended so" in done.stderr
    assert json.loads(program.stdout)["code"] == "pruned"


@pytest.mark.parametrize("body", [b"<html>", b'{"phase":'], ids=["html", "half"])
def test_a_start_whose_answer_cannot_be_read_may_have_started(tmp_path: Path, body: bytes) -> None:
    with Stub(tmp_path / "s", [Answer(201, body)]):
        done = posd(*CHARGE, socket=tmp_path / "s")
    assert done.returncode == 4, done.stderr
    assert "is not posd's" in done.stderr
    assert "The payment may have started; if so, it goes on." in done.stderr
    assert NO_MORE in done.stderr


def test_a_result_of_a_newer_posd_is_not_taken_for_a_refusal(tmp_path: Path) -> None:
    newer = transaction(outcome=outcome("approved_in_part", {"kind": "event", "event_id": "e-1"}))
    with Stub(tmp_path / "s", [answer(newer)] * 2):
        done = posd(*AWAIT, socket=tmp_path / "s")
        program = posd(*AWAIT, "--json", socket=tmp_path / "s")
    assert (done.returncode, program.returncode) == (4, 4)
    assert "approved_in_part" in done.stdout
    assert json.loads(program.stdout)["outcome"]["result"] == "approved_in_part"


# messages for a call that did not reach posd, and for one in doubt


def test_of_an_id_that_was_given_only_this_call_is_said_to_have_started_nothing(tmp_path: Path) -> None:
    """An earlier call with the same id may have started it."""
    fresh = posd("charge", "5", socket=tmp_path / "none")
    again = posd(*CHARGE, socket=tmp_path / "none")
    printed = posd("print", __file__, "--id", JOB, config=tmp_path / "none.toml", socket=tmp_path / "none")
    assert (fresh.returncode, again.returncode, printed.returncode) == (3, 3, 3)
    assert "Nothing was started." in fresh.stderr
    assert "Nothing was" not in again.stderr + printed.stderr
    assert "This call started nothing, but an earlier one with the same --id may have." in again.stderr
    assert "This call sent nothing to the printer, but an earlier one with the same --id may have." in printed.stderr


@pytest.mark.parametrize("phase", ["starting", "in_doubt"])
def test_a_start_that_left_doubt_is_not_told_as_started(tmp_path: Path, phase: str) -> None:
    doubt = transaction(phase=phase, attention=[attention("no_answer", "it did not answer")])
    with Stub(tmp_path / "s", [answer(doubt, 201), answer(doubt, 201)]):
        done = posd(*CHARGE, "--no-wait", socket=tmp_path / "s")
        program = posd(*CHARGE, "--no-wait", "--json", socket=tmp_path / "s")
    assert (done.returncode, program.returncode) == (4, 4)
    assert "started on" not in done.stdout
    assert "The payment may have started; if so, it goes on." in done.stderr
    assert NO_MORE in done.stderr
    assert json.loads(program.stdout)["phase"] == phase


@pytest.mark.parametrize(
    "arguments", [CHARGE, AWAIT, ("print", __file__), ("print-jobs", JOB, "--wait")], ids=lambda words: words[0]
)
@pytest.mark.parametrize("body", [b'{"of":"a newer posd"}', b"[]"], ids=["object", "list"])
def test_an_answer_that_the_command_cannot_read_is_no_refusal(
    tmp_path: Path, arguments: tuple[str, ...], body: bytes
) -> None:
    with Stub(tmp_path / "s", [Answer(201, body)] * 9):
        done = posd(*arguments, config=tmp_path / "none.toml", socket=tmp_path / "s")
        shown = posd("show", ID, socket=tmp_path / "s")
    assert done.returncode == 4, done.stderr
    assert "a fault of posd itself" in done.stderr
    assert "Whether it was done is not known" in done.stderr
    assert shown.returncode == 1, shown.stderr
