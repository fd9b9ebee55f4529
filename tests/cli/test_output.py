"""The form of values for people. No text of a stranger controls the screen."""

import json
import shlex
import subprocess
from decimal import Decimal

import pytest

from posd.base.text import escaped
from posd.cli.app.output import Output, asked, money, pasted, total


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (Decimal("11.2"), "11.20"),
        (Decimal("11.20"), "11.20"),
        (Decimal("0.1234"), "0.1234"),
        (Decimal("1E+3"), "1000.00"),
        (Decimal("19999999.99"), "19999999.99"),
        (0, "0.00"),
        (7, "7.00"),
    ],
)
def test_money_has_two_places_or_more_and_no_exponent(amount: Decimal | int, text: str) -> None:
    assert money(amount) == text


def test_the_total_adds_numbers_and_extra_taxes() -> None:
    amount = {
        "iva": Decimal("0.1"),
        "subtotal_iva": Decimal("0.2"),
        "subtotal_iva0": 1,
        "extra_taxes": {"ice": Decimal("0.03")},
    }
    assert total(amount) == Decimal("1.33")


@pytest.mark.parametrize(("amount", "text"), [({"subtotal_iva0": 7, "tip": 1}, "8.00"), ({}, ""), (None, "")])
def test_an_operation_without_an_amount_is_not_shown_with_0(amount: dict[str, int] | None, text: str) -> None:
    assert asked(amount) == text


def test_control_characters_of_a_terminal_do_not_reach_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=False)
    output.line("rejected \x1b[2J\x07[bold]as written[/bold]")
    assert capsys.readouterr().out == "rejected \\u001b[2J\\u0007[bold]as written[/bold]\n"


def test_in_a_pipe_a_table_has_lines_with_tabs_and_is_never_wrapped(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).table(("a", "b"), [("x" * 300, "with\ttab\nand line")])
    assert capsys.readouterr().out == f"a\tb\n{'x' * 300}\twith\\ttab\\nand line\n"


def test_in_a_pipe_a_panel_is_labelled_lines(capsys: pytest.CaptureFixture[str]) -> None:
    Output(as_json=False).panel("approved", [("ticket", "17"), ("", "more")], "green")
    assert capsys.readouterr().out == "approved\nticket: 17\nmore\n"


def test_escaped_json_is_valid_and_means_the_same() -> None:
    text = '{"a": "\u009b\u202e\x7fé"}\n'
    assert escaped(text) == '{"a": "\\u009b\\u202e\\u007fé"}\n'
    assert json.loads(escaped(text)) == json.loads(text)


def test_json_is_printed_verbatim(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(as_json=True)
    output.line("for people only")
    output.json(b'{"iva":10.10,"big":1e2}')
    assert capsys.readouterr().out == '{"iva":10.10,"big":1e2}\n'


def test_a_long_command_continues_on_the_next_line_in_shell_syntax() -> None:
    command = "install -m 0640 '/a place/of some/length' /etc/posd/of-some-length-too"
    lines = pasted(command, 4, 40)
    assert lines[0] == "    install -m 0640 \\"
    assert all(len(line) <= 40 for line in lines)
    said = subprocess.run(
        ["sh", "-c", "printf '%s\\n' " + "\n".join(lines)], stdout=subprocess.PIPE, text=True, check=True
    )
    assert said.stdout.splitlines() == shlex.split(command)
    assert pasted(command, 4, 100) == [f"    {command}"]
