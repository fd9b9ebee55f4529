"""In each kind of output of commands, a stranger's text stays in its line and cell, and controls nothing.

tests/e2e/test_strange_texts.py tests the commands themselves.
"""

import io
import json
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from rich.cells import cell_len

from posd.cli.app.output import Output
from posd.cli.app.tables import Layout
from posd.cli.main import main
from posd.cli.payments.show import PaymentProgress
from posd.cli.simulator_screen import as_words
from posd.cli.watch.state import Away, Shop, WatchState
from tests.cli.documents import answer, attention, transaction
from tests.cli.processes import asked, asked_on_terminal
from tests.cli.stub import Answer, Stub
from tests.cli.test_quarantine import entry
from tests.cli.watch.shops import NOW, drawn, identity, payment, terminal
from tests.support.strange import ALL, OWN_SEQUENCE, STRANGE, assert_lines, assert_screen
from tests.support.tables import every


class Screen(io.StringIO):
    """A stream that reports that it is a terminal."""

    def isatty(self) -> bool:
        return True


def write_all(output: Output, text: str) -> None:
    output.line(text, indent=2)
    output.verbatim(text, text)
    if not output.rich:  # for programs
        output.cells((text, text))
    output.panel(text, [(text, text), ("", text)], "green")
    output.table((text, "b"), [(text, text), ((text, text), text)], Layout(whole="b"))
    output.table(("a", "b", "c"), [(text, text, text)], Layout(whole="a", under="c"))


@every("text", STRANGE.values(), STRANGE)
def test_in_a_pipe_a_text_is_one_line_and_a_cell_one_cell(text: str) -> None:
    stream = io.StringIO()
    write_all(Output(as_json=False, stream=stream), text)
    written = stream.getvalue()
    assert_lines(written, tabs=True)
    assert len(written.splitlines()) == 1 + 2 + 1 + 3 + 3 + 2
    assert [len(line.split("\t")) for line in written.splitlines()] == [1, 1, 1, 2, 1, 1, 1, 2, 2, 2, 3, 3]


@every("text", STRANGE.values(), STRANGE)
def test_on_a_terminal_only_text_and_colours_are_written(text: str) -> None:
    stream = Screen()
    write_all(Output(as_json=False, stream=stream), text)
    assert_screen(stream.getvalue())


def test_a_text_beside_the_result_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).note([f"{name}: {text}" for name, text in STRANGE.items()])
    written = capsys.readouterr().err
    assert_lines(written)
    assert len(written.splitlines()) == len(STRANGE)


@pytest.mark.parametrize("terminal", [True, False], ids=["terminal", "pipe"])
def test_a_document_of_a_stream_is_valid_json_in_a_line(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    screen, pipe = Screen(), io.BytesIO()
    monkeypatch.setattr(sys, "stdout", screen if terminal else io.TextIOWrapper(pipe, "latin-1"))
    Output(as_json=True).json_line(json.dumps({"a": ALL}, ensure_ascii=False))
    written = screen.getvalue() if terminal else pipe.getvalue().decode()
    assert json.loads(written) == {"a": ALL}
    if terminal:
        assert_screen(written)


def test_wide_letters_and_accents_keep_the_columns_of_a_table_in_line() -> None:
    stream = Screen()
    wide = ("\N{CJK UNIFIED IDEOGRAPH-5B57}" * 3, "Cafe\u0301", "e\u0302\u0323", "plain", STRANGE["combining"])
    Output(as_json=False, stream=stream).table(("name", "next"), [(text, "|") for text in wide])
    rows = OWN_SEQUENCE.sub("", stream.getvalue()).splitlines()[-len(wide) :]
    assert len({cell_len(row[: row.rindex("|")]) for row in rows}) == 1, rows


def test_a_live_line_does_not_control_the_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Screen()
    progress = PaymentProgress(Output(as_json=False, stream=stream), {**transaction(), "type": "charge"})
    for text in STRANGE.values():
        progress.now(text)
        progress.output.stdout.print(progress._render())
    assert_screen(stream.getvalue())
    assert len(stream.getvalue().splitlines()) >= len(STRANGE)


PROBLEMS = {
    "problem": {"type": "x", "status": 409, "code": "terminal_busy", "title": ALL, "detail": ALL},
    "unknown": {"type": "x", "status": 422, "code": ALL, "title": ALL, "detail": ALL},
    "fields": {
        "status": 422,
        "code": "invalid_request",
        "detail": ALL,
        "errors": [{"path": f"/{ALL}", "message": ALL}, {"path": ALL, "message": ALL}],
    },
}


@every("given", [("show", identity(1)), ("list",), ("await", identity(1)), ("quarantine",)])
@every("said", [*PROBLEMS, "no JSON", "no HTTP answer of posd"])
def test_the_text_of_another_server_is_one_line(given: tuple[str, ...], said: str) -> None:
    body = json.dumps(PROBLEMS.get(said, ALL), ensure_ascii=False).encode() if said in PROBLEMS else ALL.encode()
    status = PROBLEMS.get(said, {}).get("status", 200 if said == "no JSON" else 418)
    kind = "application/problem+json" if said in PROBLEMS else "text/html"
    done = asked([Answer(int(str(status)), body, kind)], *given)
    assert done.returncode != 0
    assert_lines(done.stderr)
    assert_lines(done.stdout, tabs=True)


@every("kind", ["bash", "zsh", "fish"])
def test_a_shell_is_offered_no_line_of_a_stranger(tmp_path: Path, kind: str) -> None:
    items = [
        transaction(client_transaction_id=identity(number), terminal=text, type=text, status=text, phase="active")
        for number, text in enumerate(STRANGE.values())
    ]
    marked = transaction(attention=[attention(text, text) for text in STRANGE.values()])
    listed = {"transactions": [*items, marked], "next_cursor": None}
    told = {"show": 1, "acknowledge": 2}
    for command, place in told.items():
        jobs = {"print_jobs": [], "next_cursor": None}
        with Stub(tmp_path / "s", [answer(listed), answer(jobs)]) as stub:
            words = ["posd", command, *[identity(1)] * (place - 1), ""]
            environment = {"COMP_WORDS": " ".join(words), "COMP_CWORD": str(place + 1)}
            environment |= {"POSD_SOCKET": str(stub.socket), "_POSD_COMPLETE": f"{kind}_complete"}
            offered = CliRunner().invoke(main, [], prog_name="posd", env=environment).output.splitlines()
        assert offered
        for line in offered:
            assert_lines(line, tabs=kind == "fish")


@every("text", STRANGE.values(), STRANGE)
def test_the_lists_and_notices_of_watch_have_no_line_of_a_stranger(text: str) -> None:
    document = {**payment(1, 64, attention=[attention("gap", text)]), "status": text, "terminal": text, "type": text}
    health = {"status": text, "checks": {text: {"status": "degraded", "detail": text, "commands": []}}}
    away = {**terminal(1), "serial": text, "base_url": text, "reason": text, "reachable": False}
    shop = Shop(health, text, [away], [document], [document])
    for away_since in (None, Away(text, NOW, NOW)):
        for line in drawn(WatchState(shop, away_since), 4000):
            assert_lines(line)


@every("text", STRANGE.values(), STRANGE)
def test_the_simulated_terminal_shows_a_request_in_one_line(text: str) -> None:
    at = "2026-11-01T10:00:00.000Z"
    entries: list[dict[str, Any]] = [
        {"kind": "start", "client_transaction_id": text, "operation": text, "transaction_reference": text}
        | {"access_mode": "local", "scenario": text, "code": text, "http_status": 200},
        {"kind": "dropped", "client_transaction_id": text, "status": text, "reason": text},
        {"kind": "print", "print_job_id": text, "access_mode": "local", "scenario": text, "code": None}
        | {"http_status": None},
        {"kind": "mdns", "result": text, "detail": text},
    ]
    for line in entries:
        said = click.unstyle(as_words({"at": at, "serial": text} | line) or "")
        assert len(said.splitlines()) == 1
        assert_lines(said)
    paper = as_words({"at": at, "kind": "printed", "print_job_id": text, "text": f"{text}\n{text}", "error_code": None})
    for line in click.unstyle(paper or "").split("\n")[1:]:
        assert line.lstrip().startswith("|") or not line
    assert_screen(paper or "")


def test_a_quarantined_body_cannot_imitate_posds_text_or_control_the_screen() -> None:
    document = json.dumps(entry(1, ALL.encode(), reason=ALL, peer=ALL), ensure_ascii=False).encode()
    script = [Answer(200, document)]  # JSON does not require an escape for U+009B, which also controls a screen
    for options in ((), ("--json",)):
        assert_screen(asked_on_terminal(script, "quarantine", "1", *options, columns=200).written)
    said, _, body = asked(script, "quarantine", "1").stdout.partition(" bytes:\n")
    assert_lines(said)
    assert all(line.startswith("  ") for line in body.splitlines())
