"""The form of values for people, and output that cannot be encoded or written, which changes no exit code about money.

No text of a stranger controls the screen.
"""

import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

import pytest
from rich.cells import cell_len

from posd.base.text import escaped
from posd.cli.app import times
from posd.cli.app.output import Output, asked, money, pasted, total
from posd.cli.app.tables import UNICODE, Id, Layout, Number, laid_out, short_ids
from posd.cli.app.times import TimeCell
from tests.rig import forks
from tests.rig.commands import PATIENCE
from tests.rig.documents import AT, ID, answer, outcome, transaction
from tests.rig.stub import Answer, Stub
from tests.rig.tables import every


@every(
    ("amount", "text"),
    [
        (Decimal("11.2"), "11.20"),
        (Decimal("0.1234"), "0.1234"),
        (Decimal("1E+3"), "1000.00"),
        (Decimal("19999999.99"), "19999999.99"),
        (0, "0.00"),
    ],
)
def test_money_has_at_least_two_decimals_and_no_exponent(amount: Decimal | int, text: str) -> None:
    assert money(amount) == text


def test_the_total_includes_extra_taxes_and_a_missing_amount_is_not_0() -> None:
    extra = {"subtotal_iva0": 1, "extra_taxes": {"ice": Decimal("0.03")}}
    assert total({"iva": Decimal("0.1"), "subtotal_iva": Decimal("0.2")} | extra) == Decimal("1.33")
    assert (asked({"subtotal_iva0": 7, "tip": 1}), asked({}), asked(None)) == ("8.00", "", "")


def test_a_pipe_gets_lines_that_are_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.line("rejected \x1b[2J\x07[bold]as written[/bold]")
    output.table(("a", "b"), [("x" * 300, "with\ttab\nand line")])
    output.panel("approved", [("ticket", "17"), ("", "more")], "green")
    assert capsys.readouterr().out == (
        "rejected \\u001b[2J\\u0007[bold]as written[/bold]\n"
        f"a\tb\n{'x' * 300}\twith\\ttab\\nand line\n"
        "approved\nticket: 17\nmore\n"
    )


def test_escaped_json_means_the_same() -> None:
    text = '{"a": "\u009b\u202e\x7fé"}\n'
    assert json.loads(escaped(text)) == json.loads(text)


def test_a_long_command_continues_on_the_next_line_in_shell_syntax() -> None:
    command = "install -m 0640 '/a place/of some/length' /etc/posd/of-some-length-too"
    lines = pasted(command, 4, 40)
    assert (lines[0], max(map(len, lines)) <= 40) == ("    install -m 0640 \\", True)
    script = "printf '%s\\n' " + "\n".join(lines)
    said = subprocess.run(["sh", "-c", script], stdout=subprocess.PIPE, text=True, check=True)
    assert said.stdout.splitlines() == shlex.split(command)
    assert pasted(command, 4, 100) == [f"    {command}"]


# Tables on a terminal.


ONE, TWIN, OTHER = (
    "7f3c1f0e-0001-4000-8000-00000000000a",
    "7f3c1f0e-0002-4000-8000-00000000000b",
    "aaaa0000-0000-4000-8000-000000000001",
)
SERIAL = "P8-2026-ECUADOR-QUITO-0000000123"
COLUMNS = ("created", "transaction", "terminal", "type", "amount", "state", "sale")
#: Difficult rows: long serials, 8 digits, ids with the same beginning, the longest attention, and wide characters.
ROWS = [
    (TimeCell(AT), Id(ONE), SERIAL, "charge", Number("12345678.99"), "approved", "2026/1"),
    (TimeCell(AT), Id(TWIN), "字" * 12, "pre-auth", Number("1.00"), "declined !conflicting_final", "-"),
    (TimeCell(AT), Id(OTHER), "SN-1\x1b[2J", "refund", Number("-"), "in doubt !quarantined_event !in_doubt", "-"),
]


def drawn(room: int, glyphs: tuple[str, str] = UNICODE) -> list[str]:
    layout = Layout(whole="transaction", under="terminal", cut="terminal", extra=("sale",))
    table = laid_out(COLUMNS, ROWS, room, layout, glyphs=glyphs)
    return [*table.head, table.rule, *table.body]


@every("room", [*range(20, 130, 7), 80, 100, 120, 200])
def test_no_line_is_wider_than_the_screen_and_important_text_is_not_broken(room: int) -> None:
    lines = drawn(room)
    assert max(map(cell_len, lines)) <= room
    assert "\x1b" not in "".join(lines)
    if room >= 80:
        words = {word for line in lines for word in line.split()}
        ids = (ONE, TWIN, OTHER) if room == 200 else ("7f3c1f0e-0001", "7f3c1f0e-0002", "aaaa0000")
        marks = ("!conflicting_final", "!quarantined_event")
        assert {"12345678.99", "approved", "declined", "pre-auth", *ids, *marks} <= words
        assert any(line.rstrip().endswith("sale") for line in lines[:2]) == (room == 200)


def test_short_ids_are_long_enough_to_be_distinct() -> None:
    assert short_ids([ONE, OTHER, ONE]) == ["7f3c1f0e", "aaaa0000", "7f3c1f0e"]
    assert short_ids([ONE, TWIN, OTHER, "receipt-10"]) == ["7f3c1f0e-0001", "7f3c1f0e-0002", "aaaa0000", "receipt-10"]
    assert short_ids([OTHER[:-1] + "3", OTHER, OTHER[:-2] + "44"]) == [OTHER[:-1] + "3", OTHER, OTHER[:-2] + "4"]
    assert short_ids([]) == []


# Times. People get local times with the zone, or UTC. Programs get times with an offset.


SUMMER, WINTER = "2026-07-01T12:00:00.120Z", "2026-11-20T14:02:11.123Z"


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", request.param)
        time.tzset()
        times.use(utc=False, year=2026)
        yield
    time.tzset()
    times.use(utc=False)


@pytest.mark.parametrize("zone", ["America/Guayaquil"], indirect=True)
def test_a_time_has_its_zone(zone: None) -> None:
    assert times.moment(WINTER) == "09:02:11 UTC-05"
    assert times.moment(WINTER, date=True) == "20 Nov 09:02:11 UTC-05"
    assert times.moment("2025-11-20T14:02:11Z", date=True) == "20 Nov 2025 09:02:11 UTC-05"
    assert times.moment(WINTER, year=True) == "20 Nov 2026 09:02:11 UTC-05"
    assert times.moment(None) == times.moment("") == "-"
    assert times.short(WINTER, milliseconds=True) == "20 Nov 09:02:11.123"
    assert times.day("2026-11-20T03:00:00Z") == "2026-11-19"
    assert times.for_programs(WINTER) == "2026-11-20T09:02:11-05:00"
    assert times.in_words("not before 2026-11-20 14:02:11 UTC, nor 2026-11-20T14:02:11.123Z") == (
        "not before 20 Nov 09:02:11 UTC-05, nor 20 Nov 09:02:11 UTC-05"
    )
    times.use(utc=True, year=2026)
    assert times.moment(WINTER, date=True) == "20 Nov 14:02:11 UTC"
    assert times.for_programs(WINTER, milliseconds=True) == "2026-11-20T14:02:11.123Z"


@pytest.mark.parametrize("zone", ["Europe/Berlin"], indirect=True)
def test_a_table_names_the_zones_of_its_times_once(zone: None) -> None:
    rows = [(TimeCell(SUMMER), "a"), (TimeCell(WINTER), "b"), (TimeCell(""), "c")]
    head, _, body = laid_out(("at", "what"), rows, 80)
    assert head == ["at (CEST/CET)    what"]
    assert body == ["01 Jul 14:00:00  a", "20 Nov 15:02:11  b", "-                c"]
    assert laid_out(("at",), [(TimeCell(""),)], 80).head == ["at"]


# Lost output.


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
        line, given = ["--socket", str(stub.socket), *words.split()], os.environ | environment
        with _opened(ends) as out:
            if forks.can_fork(given):
                stdout = None if ends == CLOSED else out.fileno()
                stderr = out if both else errors
                code = forks.Forked(line, stdout=stdout, stderr=stderr.fileno(), env=given).wait(PATIENCE)
            else:
                code = subprocess.run(
                    forks.command("posd", line), stdout=out, stderr=errors, env=given, check=False
                ).returncode
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
    for more in ("", " --all"):  # JSON over several lines, and JSON in one line
        run(words + more, answers, f"{tmp_path}/out", **environment)
        assert json.loads((tmp_path / "out").read_bytes())["transactions"][0]["sale"] == STRANGE


@every(("words", "answers", "code"), MONEY.values(), MONEY)
def test_lost_output_does_not_change_the_exit_code_of_a_payment(words: str, answers: list[Answer], code: int) -> None:
    for ends, both in ((FULL, False), (UNREAD, False), (CLOSED, False), (FULL, True)):
        assert run(words, answers, ends, both)[0] == code, (ends, both)


@every(("words", "answers"), READING.values(), READING)
def test_a_command_that_only_shows_data_reports_lost_output(words: str, answers: list[Answer]) -> None:
    for ends in UNWRITABLE:
        code, said = run(words, answers, ends)
        assert (code, said.count("\n")) == (1, ends != UNREAD), (ends, said)


def test_a_completed_action_exits_0_even_if_its_output_is_lost(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(f'[database]\npath = "{tmp_path}/posd/posd.db"\n')
    words = f"--config {tmp_path}/config.toml tls init --force --name posd.example"
    assert {ends: run(words, [], ends)[0] for ends in UNWRITABLE} == dict.fromkeys(UNWRITABLE, 0)
    assert (tmp_path / "posd" / "tls" / "server.crt").exists()
