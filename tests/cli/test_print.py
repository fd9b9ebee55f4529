"""`posd print` and `posd list --print-jobs`: the request, refusals, the wait, the final messages, and the list."""

import shlex
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from posd.base.limits import MAX_DOCUMENT_BYTES
from tests.rig import forks
from tests.rig.commands import FILE_TO_PRINT, PATIENCE, Done, asked, check
from tests.rig.documents import COMPLETED, FAILED, ID, JOB, REFUSED, UNSENT, answer, attention, print_job
from tests.rig.stub import Answer, Stub, problem
from tests.rig.tables import every

DEEP = b'{"a":' + b"[" * 100_000
ACCEPTED = answer(print_job(), 201)
THIS = f"print {FILE_TO_PRINT} --id {JOB}"


def printed(tmp_path: Path, content: bytes, *arguments: str, config: str = "") -> Done:
    """Run `posd print` for a file with this content. The terminal prints at once."""
    file = tmp_path / "receipt"
    file.write_bytes(content)
    return asked([answer(COMPLETED, 201)], "print", str(file), *arguments, config=config)


# Requests.


@every(
    ("content", "document"),
    [
        (b"Thank you\n  1 x Tea\t2.50\n", b'{"text":"Thank you\\n  1 x Tea\\t2.50\\n"}'),
        ("\ufeffcaf\u00e9".encode(), '{"text":"caf\u00e9"}'.encode()),
        (b"one\r\ntwo\x0cthree", b'{"text":"one\\r\\ntwo\\fthree"}'),
        (b'  {"lines": [1.50, 1e2], "b":1, "a":2}\n', b'  {"lines": [1.50, 1e2], "b":1, "a":2}\n'),
        (b'{"text":"\\u001b@"}', b'{"text":"\\u001b@"}'),
        (b"[1, 2]", b'{"text":"[1, 2]"}'),
        (b"12.50", b'{"text":"12.50"}'),
    ],
)
def test_text_is_sent_as_a_document_and_an_object_is_sent_unchanged(
    tmp_path: Path, content: bytes, document: bytes
) -> None:
    [call] = printed(tmp_path, content, "--id", JOB).ends(0).calls
    assert (call.method, call.path) == ("PUT", f"/v1/print-jobs/{JOB}")
    assert call.body == b'{"document":' + document + b"}"


def test_the_typed_values_are_sent_under_a_new_id_that_is_shown_first(tmp_path: Path) -> None:
    typed = ("--text", "--terminal", "SN-2", "--reference", "ticket 7", "--reprint-of", ID)
    done = printed(tmp_path, b"{}x", *typed).ends(0)
    named = {"terminal": "SN-2", "external_reference": "ticket 7", "reprint_of": ID}
    [(_, path, body)] = done.sent
    assert body == named | {"document": {"text": "{}x"}}
    chosen = path.removeprefix("/print-jobs/")
    assert (uuid.UUID(chosen).version, done.lines[0]) == (4, f"print job {chosen}")


def test_the_configuration_decides_how_text_becomes_a_document(tmp_path: Path) -> None:
    commands = 'document_member = ""\ntext_member = "commands"'
    as_commands = b'{"commands":[{"type":"text","text":"x\\n"}]}'
    for given, document in ((commands, as_commands), ('text_member = "t"', b'{"t":"x"}')):
        done = printed(tmp_path, b"x", config=f"[print]\n{given}\n").ends(0)
        assert done.calls[0].body == b'{"document":' + document + b"}"
    printed(tmp_path, b"x", config="[print]\ntext_membre = 1\n").ends(2, "print.text_membre")


@every(
    ("content", "paper"),
    [
        (b"Thank you\n 1 x Tea\t2.50\x0c", "Thank you\n 1 x Tea        2.50\n"),
        (
            b'{"commands": [{"type": "text", "text": "A\\n"}, {"type": "image"}, {"type": "qr", "content": "x"}]}',
            "A\n[image]\n[QR: x]\n",
        ),
        (b'{"commands": 1}', "commands: 1\n"),
        (DEEP + b"]" * 100_000 + b"}", ""),
    ],
)
def test_a_preview_shows_the_paper_and_sends_nothing(tmp_path: Path, content: bytes, paper: str) -> None:
    """A document that is nested too deeply is refused."""
    done = printed(tmp_path, content, "--preview")
    assert (done.returncode, done.stdout, done.calls) == (0 if paper else 2, paper, []), done.stderr


# Refusals.


@every(
    ("content", "words"),
    [
        (b"\x89PNG\r\n", "is not UTF-8 text (byte 0)"),
        (b"caf\xe9", "is not UTF-8 text (byte 3)"),
        (b"one\ntwo\x00", "line 2 has the control character 0x00"),
        (b"\x1b@Hello", "line 1 has the control character 0x1b"),
        ("a\u009b2J".encode(), "line 1 has the control character 0x9b"),
        (b"", "is empty"),
        (b" \n\t", "is empty"),
        (b"{}", "is an empty JSON object"),
        (b'{"text": "x",}', "begins like a JSON object but is not one"),
        (DEEP, "begins like a JSON object but is not one"),
        (b"x" * (MAX_DOCUMENT_BYTES + 1), "is too large: a document has at most 240 KiB"),
        (b'"' * (MAX_DOCUMENT_BYTES // 2), "is too large: a document has at most 240 KiB"),
    ],
)
def test_an_unprintable_file_is_refused_with_a_reason_and_nothing_is_sent(
    tmp_path: Path, content: bytes, words: str
) -> None:
    assert printed(tmp_path, content).ends(2, words).calls == []


# Ends.


UNKNOWN_END = "result: The print job ended in a way that this version does not know."
BY_PERSON = "result: An operator recorded that the document is printed."


@every(
    ("end", "code", "words"),
    [
        (COMPLETED, 0, ["printed", "result: The terminal printed the document.", "proof: the terminal reported it"]),
        (FAILED, 1, ["failed", "error: out of paper (E7)", f"posd print FILE --reprint-of {JOB}"]),
        (REFUSED, 1, ["refused", "result: The terminal did not accept the print job: nothing is printed."]),
        (UNSENT, 1, ["not sent", "result: The print job never reached the terminal: nothing is printed."]),
        (COMPLETED | {"decided_by": "poll"}, 0, ["proof: the terminal was asked"]),
        (COMPLETED | {"decided_by": "operator"}, 0, [BY_PERSON]),
        (FAILED | {"error_message": None}, 1, ["error: E7"]),
        (COMPLETED | {"attention": [attention("outcome_corrected", "x")]}, 0, [f"    posd show {JOB}"]),
        (COMPLETED | {"status": "EATEN"}, 1, [UNKNOWN_END]),
    ],
)
def test_the_end_of_a_job_is_shown_and_decides_the_exit_code(end: dict[str, Any], code: int, words: list[str]) -> None:
    shown = [f"\n{line}\n" for line in (*words, f"print job: {JOB}")]
    check(THIS, [ACCEPTED, answer(end)], code, *shown)
    check(THIS, [answer(end, 201)], code, *shown, as_json=True)


def test_a_wait_shows_each_state_and_attention_once() -> None:
    stuck = answer(print_job(status="IN_PROGRESS", attention=[attention("print_stuck", "for 300 s")]), 202)
    done = asked([ACCEPTED, answer(print_job(), 202), stuck, stuck, answer(COMPLETED)], *shlex.split(THIS)).ends(0)
    told = [line.split()[1] for line in done.lines if line[:2].isdigit()]
    assert told == ["PENDING", "IN_PROGRESS", "COMPLETED"]
    assert done.stdout.count("attention print_stuck: for 300 s") == 1
    assert f"    posd resolve {JOB} COMPLETED" in done.lines
    assert {path.split("?")[0] for _, path, _ in done.sent[1:]} == {f"/print-jobs/{JOB}/outcome"}


@pytest.mark.slow
def test_a_call_without_a_response_is_repeated_and_a_wait_survives_a_restart() -> None:
    cut, stopping = Answer(cut=True), problem(503, "draining", "stopping")
    done = asked([cut, stopping, ACCEPTED, cut, stopping, answer(COMPLETED)], "print", __file__).ends(0)
    assert [call.method for call in done.calls] == ["PUT", "PUT", "PUT", "GET", "GET", "GET"]
    assert len({(call.path, call.body) for call in done.calls[:3]}) == 1
    for known in ("may have started", "goes on"):
        assert done.stdout.count(f"posd does not answer; waiting for it (the print job {known})") == 1
    assert done.stdout.count("posd is back") == 2


NO_MORE = "Do not print it again under another id before you know the result."


def test_without_a_wait_the_command_that_shows_the_state_is_named() -> None:
    line, doubt = f"{THIS} --no-wait", print_job(status=None, phase="in_doubt")
    check(line, [ACCEPTED], 0, "sent to SN-0001", f"its state: posd show {JOB}")
    check(line, [answer(doubt, 201)], 4, "It may have been sent to the printer.", NO_MORE, lacks=["sent to SN"])
    check(line, [answer(UNSENT, 201)], 1)


def test_a_possibly_printed_job_stays_open() -> None:
    """The response is a fault of posd, or comes from another program, or the wait is over."""
    for reply in (problem(500, "internal_error", "a fault"), Answer(404, b"<html>", "text/html"), ACCEPTED):
        check(f"{THIS} --timeout 0", [reply], 4, f"posd await {JOB}", NO_MORE)


@pytest.mark.slow
def test_standard_input_is_printed(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(COMPLETED, 201)]) as stub:
        line = forks.command("posd", ("--socket", str(tmp_path / "s"), "print", "-"))
        done = subprocess.run(line, input=b"from a pipe", capture_output=True, timeout=PATIENCE, check=False)
    assert (done.returncode, stub.calls[0].body) == (0, b'{"document":{"text":"from a pipe"}}'), done.stderr


# posd list --print-jobs


STUCK = print_job(status="IN_PROGRESS", attention=[attention("print_stuck", "for 300 s")])
DOUBTFUL = print_job(status=None, phase="in_doubt", attention=[attention("in_doubt", "no answer")])


def page(*jobs: dict[str, Any], cursor: str | None = None) -> Answer:
    return answer({"print_jobs": list(jobs), "next_cursor": cursor})


def test_the_command_has_the_filters_of_the_api() -> None:
    for options, query in (
        ("", "limit=50"),
        ("--open", "limit=50&open=true"),
        ("--attention", "limit=50&attention=true"),
        ("--terminal SN-1 --limit 7", "limit=7&terminal=SN-1"),
    ):
        check(f"print-jobs {options}", [page()], 0, sent=[("GET", f"/print-jobs?{query}", None)])


def test_the_table_has_one_row_for_each_job() -> None:
    jobs = (STUCK, DOUBTFUL, COMPLETED, FAILED, REFUSED, print_job(terminal=None, external_reference="ticket\t7"))
    head, *rows = asked([page(*jobs)], "list", "--print-jobs").rows
    assert head == ["created", "print job", "terminal", "reference", "state"]
    states = ("printing !print_stuck", "in doubt !in_doubt", "printed", "failed", "refused")
    assert [row[1:] for row in rows] == [
        *([JOB, "SN-0001", "-", state] for state in states),
        [JOB, "-", r"ticket\t7", "waiting to print"],
    ]


def test_a_command_waits_for_the_end_of_a_job() -> None:
    line, waits = f"print-jobs {JOB} --wait", [answer(print_job()), answer(print_job(status="IN_PROGRESS"), 202)]
    for end, code in ((COMPLETED, 0), (FAILED, 1)):
        check(line, [*waits, answer(end)], code, "  IN_PROGRESS\n")
        check(line, [answer(end)], code, as_json=True)
