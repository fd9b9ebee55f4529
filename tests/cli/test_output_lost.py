"""A failure to encode or write output changes no exit code about money."""

import json
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

from tests.cli.documents import ID, answer, outcome, transaction
from tests.cli.processes import PATIENCE, command
from tests.cli.stub import Answer, Stub
from tests.support import forks
from tests.support.tables import every

#: Text that only UTF-8 can encode completely. Latin-1 can encode only the first letter of this text.
STRANGE = "é字\N{LATIN SMALL LETTER TURNED A}"
EVIDENCE = {"kind": "event", "event_id": "e-1"}


def final(result: str) -> dict[str, object]:
    ended = outcome(result, EVIDENCE, ticket_number=STRANGE, reached_acquirer=True)
    return transaction(outcome=ended, sale=STRANGE, next_step="done" if result == "approved" else "new_id_ok")


FINAL = {result: answer(final(result), 201) for result in ("approved", "declined")}
OPEN = answer(transaction(sale=STRANGE, terminal=STRANGE), 201)
LIST = Answer(body=json.dumps({"transactions": [final("approved")], "next_cursor": None}, ensure_ascii=False).encode())

#: Command -> the daemon's response, and the exit code about money.
MONEY: dict[str, tuple[str, list[Answer], int]] = {
    "charge approved": ("charge 5", [FINAL["approved"]], 0),
    "charge approved, as JSON": ("charge 5 --json", [FINAL["approved"]], 0),
    "charge declined": ("charge 5", [FINAL["declined"]], 1),
    "charge in doubt": ("charge 5 --no-wait", [OPEN], 4),
    "void approved": (f"void --reference {ID}", [FINAL["approved"]], 0),
    "await approved": (f"await {ID}", [FINAL["approved"]], 0),
    "await declined": (f"await {ID}", [FINAL["declined"]], 1),
    "resolve": (f"resolve {ID} approved --operator Ana --note seen --yes", [FINAL["approved"]], 0),
}
#: Command -> the daemon's response, for commands that only show something.
READING: dict[str, tuple[str, list[Answer]]] = {
    "list": ("list", [LIST]),
    "list as JSON": ("list --json", [LIST]),
    "terminals": ("terminals", [answer({"terminals": []})]),
    "explain": ("explain in_doubt", []),
    "simulate": ("simulate --list", []),
    "metrics": ("metrics", [Answer(200, b"# " + STRANGE.encode() + b"\n", "text/plain; charset=utf-8")]),
}
ENCODINGS = {"ASCII": {"PYTHONIOENCODING": "ascii"}, "Latin-1": {"PYTHONIOENCODING": "iso-8859-1"}}
#: Environment with a locale with ASCII. The interpreter reads the locale at its start.
ASCII_LOCALE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


#: Kinds of stdout: a full disk, a pipe without a reader, a closed descriptor.
FULL, UNREAD, CLOSED = UNWRITABLE = ("full", "unread", "closed")


def run(words: str, answers: list[Answer], ends: str = "", both: bool = False, **environment: str) -> tuple[int, str]:
    """Run a command with this stdout. With `both`, also use this stderr. Return the exit code and stderr."""
    with (
        TemporaryDirectory(prefix="posd-") as home,
        Stub(Path(home) / "s", list(answers)) as stub,
        (Path(home) / "errors").open("w+b") as errors,
    ):
        line, given = command(tuple(words.split()), None, stub.socket), os.environ | environment
        with _opened(ends) as out:
            if forks.can_fork(given):
                stdout = None if ends == CLOSED else out.fileno()
                stderr = out if both else errors
                code = forks.Forked(line[3:], stdout=stdout, stderr=stderr.fileno(), env=given).wait(PATIENCE)
            else:
                code = subprocess.run(line, stdout=out, stderr=errors, env=given, check=False).returncode
        errors.seek(0)
        said = errors.read().decode("latin-1")
        assert not stub.script, said
    return code, said


def _opened(ends: str) -> IO[bytes]:
    if ends == UNREAD:
        read, out = os.pipe()
        os.close(read)
        return os.fdopen(out, "wb")
    return Path({FULL: "/dev/full", CLOSED: os.devnull}.get(ends, ends or os.devnull)).open("wb")


@every(("words", "answers", "code"), [*MONEY.values(), *((*row, 0) for row in READING.values())])
def test_a_character_that_cannot_be_encoded_is_replaced(words: str, answers: list[Answer], code: int) -> None:
    for name, environment in ENCODINGS.items():
        assert run(words, answers, **environment)[0] == code, name


@every("environment", [*ENCODINGS.values(), ASCII_LOCALE])
def test_json_is_utf_8_in_any_locale(tmp_path: Path, environment: dict[str, str]) -> None:
    words, answers = READING["list as JSON"]
    run(words, answers, f"{tmp_path}/out", **environment)
    assert json.loads((tmp_path / "out").read_bytes())["transactions"][0]["sale"] == STRANGE


@every(("words", "answers", "code"), MONEY.values(), MONEY)
def test_lost_output_does_not_change_the_exit_code_of_a_payment(words: str, answers: list[Answer], code: int) -> None:
    for ends, both in ((FULL, False), (UNREAD, False), (CLOSED, False), (FULL, True)):
        assert run(words, answers, ends, both)[0] == code, (ends, both)


@every(("words", "answers"), READING.values(), READING)
def test_a_command_that_only_shows_something_reports_lost_output(words: str, answers: list[Answer]) -> None:
    for ends in UNWRITABLE:
        code, said = run(words, answers, ends)
        assert (code, said.count("\n")) == (1, ends != UNREAD), (ends, said)


def test_a_completed_action_exits_0_even_if_its_output_is_lost(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'[database]\npath = "{tmp_path}/posd/posd.db"\n')
    words = f"--config {tmp_path}/config.toml tls init --force --name posd.example"
    assert {ends: run(words, [], ends)[0] for ends in UNWRITABLE} == dict.fromkeys(UNWRITABLE, 0)
    assert (tmp_path / "posd" / "tls" / "server.crt").exists()
