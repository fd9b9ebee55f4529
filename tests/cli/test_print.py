"""`posd print`: the request for a file, refusals, the wait, and the messages at the end."""

import json
import subprocess
import uuid
from pathlib import Path
from typing import Any

import pytest

from posd.printing.request import MAX_DOCUMENT_BYTES
from tests.cli.documents import ID, answer, attention
from tests.cli.print_documents import COMPLETED, FAILED, JOB, REFUSED, UNSENT, print_job
from tests.cli.processes import PATIENCE, Done, command, posd, posd_interrupted, posd_on_terminal
from tests.cli.stub import Answer, Stub, problem

DEEP = b'{"a":' + b"[" * 100_000


def printed(tmp_path: Path, content: bytes, *arguments: str) -> tuple[Done, Stub]:
    """Run `posd print` of a file with that content, which is printed at once."""
    file = tmp_path / "receipt"
    file.write_bytes(content)
    with Stub(tmp_path / "s", [answer(COMPLETED, 201)]) as stub:
        done = posd("print", str(file), *arguments, config=tmp_path / "none.toml", socket=tmp_path / "s")
    return done, stub


# requests


@pytest.mark.parametrize(
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
    ids=["text", "byte order mark", "line ends", "object", "escapes in an object", "list", "number"],
)
def test_a_text_becomes_a_document_and_an_object_is_sent_as_it_stands(
    tmp_path: Path, content: bytes, document: bytes
) -> None:
    done, stub = printed(tmp_path, content, "--id", JOB)
    assert done.returncode == 0, done.stderr
    [call] = stub.calls
    assert (call.method, call.path) == ("PUT", f"/v1/print-jobs/{JOB}")
    assert call.body == b'{"document":' + document + b"}"


def test_what_is_typed_is_what_is_sent(tmp_path: Path) -> None:
    done, stub = printed(
        tmp_path, b"{}x", "--text", "--terminal", "SN-2", "--reference", "ticket 7", "--reprint-of", ID
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(stub.calls[0].body) == {
        "terminal": "SN-2",
        "external_reference": "ticket 7",
        "reprint_of": ID,
        "document": {"text": "{}x"},
    }


def test_it_chooses_an_id_and_says_it_first(tmp_path: Path) -> None:
    done, stub = printed(tmp_path, b"x")
    chosen = stub.calls[0].path.removeprefix("/v1/print-jobs/")
    assert uuid.UUID(chosen).version == 4
    assert done.stdout.splitlines()[0] == f"print job {chosen}"


@pytest.mark.slow
def test_standard_input_is_printed(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(COMPLETED, 201)]) as stub:
        done = subprocess.run(
            command(("print", "-"), tmp_path / "none.toml", tmp_path / "s"),
            input=b"from a pipe",
            capture_output=True,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert json.loads(stub.calls[0].body) == {"document": {"text": "from a pipe"}}


def test_the_configuration_says_what_becomes_of_a_text(tmp_path: Path) -> None:
    config, file = tmp_path / "config.toml", tmp_path / "receipt"
    file.write_text("x")
    for given, document in (
        ('text_member = "content"', {"content": "x"}),
        ('document_member = ""\ntext_member = "commands"', {"commands": [{"type": "text", "text": "x\n"}]}),
    ):
        config.write_text(f"[print]\n{given}\n")
        with Stub(tmp_path / "s", [answer(COMPLETED, 201)]) as stub:
            done = posd("print", str(file), config=config, socket=tmp_path / "s")
        assert (done.returncode, json.loads(stub.calls[0].body)) == (0, {"document": document})
    config.write_text("[print]\ntext_membre = 1\n")
    wrong = posd("print", str(file), config=config, socket=tmp_path / "s")
    assert (wrong.returncode, "print.text_membre" in wrong.stderr) == (2, True)


@pytest.mark.parametrize(
    ("content", "paper"),
    [
        ("Thank you\n 1 x Tea\t2.50\x0c", "Thank you\n 1 x Tea        2.50\n"),
        (
            '{"commands": [{"type": "text", "text": "A\\n"}, {"type": "image"}, {"type": "qr", "content": "x"}]}',
            "A\n[image]\n[QR: x]\n",
        ),
        ('{"commands": 1}', "commands: 1\n"),
    ],
    ids=["text", "commands", "other"],
)
def test_a_preview_shows_the_paper_and_sends_nothing(tmp_path: Path, content: str, paper: str) -> None:
    file = tmp_path / "receipt"
    file.write_text(content)
    done = posd("print", str(file), "--preview", config=tmp_path / "none.toml", socket=tmp_path / "none")
    assert (done.returncode, done.stdout) == (0, paper), done.stderr


def test_a_preview_of_what_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "receipt"
    file.write_bytes(DEEP + b"]" * 100_000 + b"}")
    done = posd("print", str(file), "--preview", config=tmp_path / "none.toml", socket=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "FILE" in done.stderr


# refusals


@pytest.mark.parametrize(
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
        (b'{"text": "x",}', "begins like a JSON object but is none"),
        (DEEP, "begins like a JSON object but is none"),
        (b"x" * (MAX_DOCUMENT_BYTES + 1), "is too large: a document has at most 240 KiB"),
        (b'"' * (MAX_DOCUMENT_BYTES // 2), "is too large: a document has at most 240 KiB"),
    ],
    ids=range(12),
)
def test_what_cannot_be_printed_is_refused_in_words_and_nothing_is_sent(
    tmp_path: Path, content: bytes, words: str
) -> None:
    done, stub = printed(tmp_path, content)
    assert done.returncode == 2
    assert f"{tmp_path / 'receipt'} {words}" in done.stderr or words in done.stderr
    assert "Traceback" not in done.stderr
    assert stub.calls == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("none.txt",), "cannot read none.txt: No such file or directory"),
        (("/",), "cannot read /: Is a directory"),
        (("/dev/zero",), "/dev/zero is too large"),
        ((), "FILE"),
        ((__file__, "--id", ".."), "'..' is not the id of a print job"),
        ((__file__, "--id", "a/b"), "'a/b' is not the id of a print job"),
        ((__file__, "--id", ""), "'' is not the id of a print job"),
        ((__file__, "--id", "a\n"), "is not the id of a print job"),
        ((__file__, "--reprint-of", "x" * 65), "is not the id of a print job"),
        ((__file__, "--timeout", "-1"), "--timeout"),
    ],
    ids=["missing", "directory", "endless", "none", "dots", "slash", "empty id", "line feed", "long id", "time-out"],
)
def test_wrong_usage_is_named_and_nothing_is_sent(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    with Stub(tmp_path / "s", []) as stub:
        done = posd("print", *arguments, config=tmp_path / "none.toml", socket=tmp_path / "s")
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert stub.calls == []


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (problem(503, "terminal_offline", "no address of SN-0001 is known"), 1),
        (problem(409, "id_reused", "this id was used for another document"), 1),
        (problem(422, "unknown_terminal", "the fleet has several"), 2),
        (problem(413, "payload_too_large", "the body is too large"), 2),
        (problem(503, "draining", "posd is stopping"), 3),
    ],
    ids=lambda value: "" if isinstance(value, int) else json.loads(value.body)["code"],
)
def test_a_refusal_is_told_in_the_daemons_words(tmp_path: Path, refusal: Answer, code: int) -> None:
    with Stub(tmp_path / "s", [refusal, refusal]):
        done = posd("print", __file__, socket=tmp_path / "s", config=tmp_path / "none.toml")
        program = posd("print", __file__, "--json", socket=tmp_path / "s", config=tmp_path / "none.toml")
    assert (done.returncode, program.returncode) == (code, code)
    assert f"posd: {json.loads(refusal.body)['detail']}" in done.stderr
    assert program.stdout.encode() == refusal.body + b"\n"


def test_without_a_daemon_nothing_was_sent(tmp_path: Path) -> None:
    done = posd("print", __file__, socket=tmp_path / "s", config=tmp_path / "none.toml")
    assert done.returncode == 3
    assert "Nothing was sent to the printer." in done.stderr


# how it ends


@pytest.mark.parametrize(
    ("end", "code", "lines"),
    [
        (COMPLETED, 0, ["printed", "result: The terminal printed it.", "proof: the terminal reported it"]),
        (FAILED, 1, ["failed", "error: out of paper (E7)", f"posd print FILE --reprint-of {JOB}"]),
        (REFUSED, 1, ["refused", "result: The terminal did not accept it: nothing is printed."]),
        (UNSENT, 1, ["not sent", "result: It never reached the terminal: nothing is printed."]),
        (COMPLETED | {"decided_by": "operator"}, 0, ["result: An operator recorded that it is printed."]),
        (FAILED | {"error_message": None}, 1, ["error: E7"]),
        (COMPLETED | {"attention": [attention("outcome_corrected", "x")]}, 0, [f"    posd print-jobs {JOB}"]),
        (COMPLETED | {"status": "EATEN"}, 1, ["result: It ended in a way that this version does not know."]),
    ],
    ids=["completed", "failed", "refused", "unsent", "by a person", "code alone", "attention", "of a later version"],
)
def test_the_end_is_told_and_gives_the_exit_code(
    tmp_path: Path, end: dict[str, Any], code: int, lines: list[str]
) -> None:
    with Stub(tmp_path / "s", [answer(print_job(), 201), answer(end), answer(end, 201)]):
        done = posd("print", __file__, socket=tmp_path / "s", config=tmp_path / "none.toml")
        program = posd("print", __file__, "--json", socket=tmp_path / "s", config=tmp_path / "none.toml")
    assert (done.returncode, program.returncode) == (code, code)
    for line in lines:
        assert line in done.stdout.splitlines()
    assert f"print job: {JOB}" in done.stdout.splitlines()
    assert json.loads(program.stdout) == end


def test_states_and_attention_are_told_once_while_it_waits(tmp_path: Path) -> None:
    stuck = print_job(status="IN_PROGRESS", attention=[attention("print_stuck", "for 300 s")])
    script = [answer(print_job(), 201), answer(print_job(), 202), answer(stuck, 202), answer(stuck, 202)]
    with Stub(tmp_path / "s", [*script, answer(COMPLETED)]) as stub:
        done = posd("print", __file__, "--id", JOB, socket=tmp_path / "s", config=tmp_path / "none.toml")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines() if line[:2].isdigit()] == [
        "PENDING",
        "IN_PROGRESS",
        "COMPLETED",
    ]
    assert done.stdout.count("attention print_stuck: for 300 s") == 1
    assert f"    posd resolve {JOB} COMPLETED\n" in done.stdout
    assert {call.path.split("?")[0] for call in stub.calls[1:]} == {f"/v1/print-jobs/{JOB}/outcome"}


@pytest.mark.slow
def test_a_call_whose_answer_is_lost_is_repeated_word_for_word_and_a_wait_outlives_the_daemon(tmp_path: Path) -> None:
    cut, stopping = Answer(cut=True), problem(503, "draining", "stopping")
    with Stub(tmp_path / "s", [cut, stopping, answer(print_job(), 201), cut, stopping, answer(COMPLETED)]) as stub:
        done = posd("print", __file__, socket=tmp_path / "s", config=tmp_path / "none.toml")
    assert done.returncode == 0, done.stderr
    assert len({(call.path, call.body) for call in stub.calls if call.method == "PUT"}) == 1
    assert [call.method for call in stub.calls] == ["PUT", "PUT", "PUT", "GET", "GET", "GET"]
    for known in ("may have started", "goes on"):
        assert done.stdout.count(f"posd does not answer; waiting for it (the print job {known})") == 1
    assert done.stdout.count("posd is back") == 2


def test_without_waiting_it_says_how_to_ask(tmp_path: Path) -> None:
    doubtful = print_job(status=None, phase="in_doubt")
    command = ("print", __file__, "--id", JOB, "--no-wait")
    with Stub(tmp_path / "s", [answer(print_job(), 201), answer(doubtful, 201), answer(UNSENT, 201)]):
        done, doubt, unsent = (posd(*command, socket=tmp_path / "s", config=tmp_path / "none.toml") for _ in range(3))
    assert (done.returncode, doubt.returncode, unsent.returncode) == (0, 4, 1)
    assert "sent to SN-0001" in done.stdout
    assert f"how it stands: posd print-jobs {JOB}" in done.stdout
    assert "sent to" not in doubt.stdout
    assert "It may have been sent to the printer." in doubt.stderr
    assert "Do not print it again under another id before you know the result." in doubt.stderr


@pytest.mark.parametrize(
    "script",
    [[problem(500, "internal_error", "a fault")], [Answer(404, b"<html>", "text/html")], [answer(print_job(), 201)]],
    ids=["a fault of posd", "not posd", "time is over"],
)
def test_what_may_be_printed_is_left_open(tmp_path: Path, script: list[Answer]) -> None:
    arguments = ("print", __file__, "--id", JOB, "--timeout", "0")
    with Stub(tmp_path / "s", script):
        done = posd(*arguments, socket=tmp_path / "s", config=tmp_path / "none.toml")
    assert done.returncode == 4
    assert f"posd print-jobs {JOB} --wait" in done.stderr
    assert "Do not print it again under another id" in done.stderr


@pytest.mark.slow
def test_ctrl_c_leaves_it_open_and_says_how_to_ask_again(tmp_path: Path) -> None:
    done = posd_interrupted(tmp_path, "print", __file__, "--json", answers=[answer(print_job(), 201)])
    assert done.returncode == 4
    assert json.loads(done.stdout) == print_job()
    assert "Stopped waiting; the print job goes on." in done.stderr
    assert f"posd print-jobs {JOB} --wait" in done.stderr
    assert "Traceback" not in done.stderr


def test_on_a_terminal_it_shows_what_happens_and_the_end_in_a_frame(tmp_path: Path) -> None:
    with Stub(tmp_path / "s", [answer(print_job(), 201), answer(print_job(status="IN_PROGRESS"), 202), answer(FAILED)]):
        seen = posd_on_terminal("print", __file__, socket=tmp_path / "s")
    assert seen.returncode == 1, seen.screen
    assert "out of paper (E7)" in seen.screen
    assert "\N{BOX DRAWINGS LIGHT ARC DOWN AND RIGHT}" in seen.screen
