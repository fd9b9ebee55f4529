"""Every word of the API has its plain words, and every command that an advice names can be typed."""

import click
import pytest

from posd.cli.main import main
from posd.cli.words import ATTENTION_ADVICE, EVIDENCE, RESOLVES, RESULTS, SEARCH_ENTRIES, SEARCHES, advice
from posd.core.transactions import AttentionCode, EvidenceKind, Result
from tests.cli.documents import ID

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
    "quarantined_event",
    "address_changed",
    "released",
]
COMMANDS = sorted({command for code in (*CODES, "unknown") for command in advice(code).commands})


def test_every_attention_of_the_contract_has_its_advice() -> None:
    assert set(CODES) == ATTENTION_ADVICE.keys()
    assert {str(code) for code in AttentionCode} <= ATTENTION_ADVICE.keys()


@pytest.mark.parametrize("code", CODES)
def test_an_advice_says_what_to_do_and_what_to_type(code: str) -> None:
    words, commands = advice(code)
    assert len(words) > 60
    assert words.endswith(":")
    assert commands


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_is_named_can_be_typed_and_stands_in_a_line(command: str) -> None:
    typed = command.format(id=ID)
    assert len("    " + typed) <= 80
    name, *arguments = typed.replace("RESULT", "approved").removeprefix("posd ").split()
    context = click.Context(main)
    target = main.get_command(context, name)
    assert target is not None
    values, left, _ = target.make_parser(context).parse_args(arguments)
    assert left == []
    assert all(values.get(p.name) for p in target.params if isinstance(p, click.Argument) and p.required)


@pytest.mark.parametrize("command", [c for c in COMMANDS if c.startswith("posd acknowledge")])
def test_an_acknowledgement_names_a_code_of_the_contract(command: str) -> None:
    assert command.split()[-1] in CODES
    assert command in advice(command.split()[-1]).commands


def test_every_result_search_and_evidence_has_its_words() -> None:
    assert {str(result) for result in Result} == RESULTS.keys() == RESOLVES.keys()
    assert SEARCHES.keys() == SEARCH_ENTRIES.keys() == {"found", "none", "no_answer"}
    assert {str(kind) for kind in EvidenceKind} == EVIDENCE.keys()
