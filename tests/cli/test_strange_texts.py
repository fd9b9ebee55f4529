"""In each kind of output of commands, a stranger's text stays in its line and cell, and controls nothing.

tests/e2e/test_strange_texts.py tests the commands themselves.
"""

import json
from pathlib import Path
from typing import Any

import click
from click.testing import CliRunner

from posd.cli.main import main
from posd.cli.simulator_screen import as_words
from tests.cli.watch.shops import identity
from tests.rig.commands import asked
from tests.rig.documents import AT, answer, attention, transaction
from tests.rig.strange import ALL, STRANGE, assert_lines, assert_screen
from tests.rig.stub import Answer, Stub
from tests.rig.tables import every

ERRORS = [{"path": f"/{ALL}", "message": ALL}, {"path": ALL, "message": ALL}]
#: Replies of another server: problems, and content that is not JSON or not posd's.
REPLIES = [
    *(
        Answer(document["status"], json.dumps(document, ensure_ascii=False).encode(), "application/problem+json")
        for document in (
            {"status": 409, "code": "terminal_busy", "title": ALL, "detail": ALL},
            {"status": 422, "code": ALL, "title": ALL, "detail": ALL},
            {"status": 422, "code": "invalid_request", "detail": ALL, "errors": ERRORS},
        )
    ),
    Answer(200, ALL.encode(), "text/html"),
    Answer(418, ALL.encode(), "text/html"),
]


@every("line", [f"show {identity(1)}", "list", f"await {identity(1)}", "quarantine"])
@every("reply", REPLIES)
def test_the_text_of_another_server_is_one_line(line: str, reply: Answer) -> None:
    done = asked([reply], *line.split())
    assert done.returncode != 0
    assert_lines(done.stderr)
    assert_lines(done.stdout, tabs=True)


@every("kind", ["bash", "zsh", "fish"])
def test_completion_shows_a_strangers_text_on_one_line(tmp_path: Path, kind: str) -> None:
    items = [
        transaction(client_transaction_id=identity(number), terminal=text, type=text, status=text, phase="active")
        for number, text in enumerate(STRANGE.values())
    ]
    items.append(transaction(attention=[attention(text, text) for text in STRANGE.values()]))
    script = [answer({"transactions": items, "next_cursor": None}), answer({"print_jobs": [], "next_cursor": None})]
    for words in ("posd show ", f"posd acknowledge {identity(1)} "):
        with Stub(tmp_path / "s", list(script)) as stub:
            environment = {"COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
            environment |= {"POSD_SOCKET": str(stub.socket), "_POSD_COMPLETE": f"{kind}_complete"}
            offered = CliRunner().invoke(main, [], prog_name="posd", env=environment).output.splitlines()
        assert offered
        for line in offered:
            assert_lines(line, tabs=kind == "fish")


@every("text", STRANGE.values(), STRANGE)
def test_the_simulated_terminal_shows_a_request_in_one_line(text: str) -> None:
    access = {"access_mode": "local", "scenario": text}
    entries: list[dict[str, Any]] = [
        {"kind": "start", "client_transaction_id": text, "operation": text, "transaction_reference": text}
        | access
        | {"code": text, "http_status": 200},
        {"kind": "dropped", "client_transaction_id": text, "status": text, "reason": text},
        {"kind": "print", "print_job_id": text, "code": None, "http_status": None} | access,
        {"kind": "mdns", "result": text, "detail": text},
    ]
    for line in entries:
        said = click.unstyle(as_words({"at": AT, "serial": text} | line) or "")
        assert len(said.splitlines()) == 1
        assert_lines(said)
    paper = as_words({"at": AT, "kind": "printed", "print_job_id": text, "text": f"{text}\n{text}", "error_code": None})
    for line in click.unstyle(paper or "").split("\n")[1:]:
        assert line.lstrip().startswith("|") or not line
    assert_screen(paper or "")
