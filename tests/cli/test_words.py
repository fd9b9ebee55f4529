"""Every word of the API has its plain words, and every command that an advice names can be typed."""

import click
import pytest

from posd.cli.app.advice import ATTENTION_ADVICE, CAPTURE_OR_VOID, NEXT_STEPS, SPELLINGS, attention_advice
from posd.cli.main import COMMANDS as POSD_COMMANDS
from posd.cli.main import main
from posd.cli.payments.start import STARTS
from posd.cli.payments.words import EVIDENCE, RESOLVED_AS, RESULTS, SEARCH_ENTRIES, SEARCHES
from posd.cli.watch.texts import check_text
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, OperationType, Result
from tests.cli.documents import ID, transaction

#: the contract's attention codes.
CODES = [
    "in_doubt",
    "gap",
    "stalled",
    "no_callback",
    "orphan",
    "serial_mismatch",
    "event_id_reused",
    "unknown_status",
    "illegal_transition",
    "conflicting_final",
    "outcome_corrected",
    "missing_reference",
    "amount_differs",
    "approval_unlikely",
    "damaged_event",
    "quarantined_event",
    "event_limit",
    "address_changed",
    "identity_conflict",
    "outcome_unread",
    "released",
]
COMMANDS = sorted(
    {
        *(command for code in (*CODES, "unknown") for command in attention_advice(code, transaction()).commands),
        *(command.format(name=name) for command in CAPTURE_OR_VOID.commands for name in (ID, f"--reference {ID}")),
        f"posd void --reference {ID}",
    }
)


def test_every_attention_of_the_contract_has_its_advice() -> None:
    assert set(CODES) == ATTENTION_ADVICE.keys()
    assert {str(code) for code in AttentionCode} <= ATTENTION_ADVICE.keys()


@pytest.mark.parametrize("kind", [*OperationType, None, "barter"], ids=str)
@pytest.mark.parametrize("code", CODES)
def test_an_advice_says_what_to_do_and_what_to_type(code: str, kind: str | None) -> None:
    words, commands = attention_advice(code, transaction(type=kind))
    assert len(words) > 60
    assert words.endswith(":")
    assert commands
    assert not set(words) & set("{}")


def test_no_advice_names_an_abort_that_posd_would_refuse() -> None:
    for code in CODES:
        _, commands = attention_advice(code, transaction(abortable=False))
        assert commands
        assert not [command for command in commands if command.startswith("posd abort")]
    assert "posd abort {id}" in attention_advice("stalled", transaction()).commands


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_named_can_be_typed_and_stands_in_a_line(command: str) -> None:
    typed = command.format(id=ID)
    assert len("    " + typed) <= 80
    name, *arguments = typed.replace("RESULT", "approved").replace("AMOUNT", "1").removeprefix("posd ").split()
    context = click.Context(main)
    target = main.get_command(context, name)
    if isinstance(target, click.Group) and arguments:
        target = target.get_command(context, arguments.pop(0))
    assert target is not None
    values, left, _ = target.make_parser(context).parse_args(arguments)
    assert left == []
    assert all(values.get(p.name) for p in target.params if isinstance(p, click.Argument) and p.required)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("posd acknowledge")])
def test_an_acknowledgement_names_a_code_of_the_contract(command: str) -> None:
    assert command.split()[-1] in CODES
    assert command in attention_advice(command.split()[-1], transaction()).commands


def test_every_result_search_evidence_and_next_step_has_its_words() -> None:
    assert {str(result) for result in Result} == RESULTS.keys() == RESOLVED_AS.keys()
    assert SEARCHES.keys() == SEARCH_ENTRIES.keys() == {"found", "none", "no_answer"}
    assert {str(kind) for kind in EvidenceKind} == EVIDENCE.keys()
    assert {str(step) for step in NextStep} == NEXT_STEPS.keys()


def test_every_operation_type_has_its_command() -> None:
    assert {row.type for row in STARTS} == {str(kind) for kind in OperationType}
    assert {row.name for row in STARTS} <= POSD_COMMANDS.keys()
    for row in STARTS:
        command = main.get_command(click.Context(main), row.name)
        assert command is not None
        assert command.name == row.name


def test_what_a_person_types_for_what_a_till_sends_is_an_option() -> None:
    void = main.get_command(click.Context(main), "void")
    assert void is not None
    options = {option for parameter in void.params for option in parameter.opts}
    assert {typed.split()[0] for typed in SPELLINGS.values()} <= options


def test_no_command_is_cut_in_the_help_of_those_that_start_something() -> None:
    context = click.Context(main)
    for row in STARTS:
        command = main.get_command(context, row.name)
        assert command is not None
        assert command.get_short_help_str(limit=80 - len("  acknowledge  ")) == row.does


def test_a_check_is_shown_by_its_texts_alone() -> None:
    check = {"status": "degraded", "detail": "it ends soon", "served": {"port": 8443}, "refused_by": [{"peer": "::1"}]}
    assert check_text(check) == "degraded: it ends soon"
    assert check_text({"status": "ok", "detail": ""}) == "ok"


def test_the_command_of_a_dispute_names_the_terminal() -> None:
    advice = attention_advice("identity_conflict", transaction(terminal="SN-{1}"))
    assert [each.format(id=ID) for each in advice.commands] == ["posd terminals", "posd terminals identity SN-{1}"]
