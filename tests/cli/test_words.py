"""The catalogue of words. The catalogue is complete and true for each operation type, and its commands are valid."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import click
import pytest

from posd import cli
from posd.base.operations import OperationType
from posd.cli.explain.catalogue import chosen
from posd.cli.main import COMMANDS as POSD_COMMANDS
from posd.cli.main import main
from posd.cli.payments.show import outcome_pairs
from posd.cli.payments.start import STARTS
from posd.cli.payments.words import (
    SPELLINGS,
    attention_advice,
    hint,
    meaning,
    next_step,
    operation,
    refused_step,
    resolving,
    state,
    status_hint,
    words_of,
)
from posd.payments.lifecycle import Status
from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.printing.model import PrintAttentionCode
from tests.cli.documents import ID, OTHER_ID, outcome, transaction
from tests.cli.manual.parsing import parse
from tests.cli.manual.parsing import words_of as words_of_line
from tests.support.tables import every

EVENT = {"kind": "event", "event_id": "e-1"}
KINDS = [*map(str, OperationType), None, "barter"]
#: Section -> codes with a row in the section, and fields of a row.
ROWS: Mapping[str, tuple[set[str], set[str]]] = {
    "attention": ({*AttentionCode}, {"do", "commands"}),
    "print": ({*PrintAttentionCode}, {"do", "commands"}),
    "next": ({*NextStep}, {"do"}),
    "result": ({*Result}, {"means", "books"}),
    "status": ({*Status}, {"hint"}),
    "evidence": ({*EvidenceKind}, {"short"}),
    "operation": ({*OperationType, "unknown"}, {"noun", "subject", "done", "approved", "undone", "twice"}),
    "subject": ({"payment", "print_job"}, {"see", "started", "may_run", "in_doubt", "never_started", "left_open"}),
    "search": ({"found", "none", "no_answer", "perhaps_another", "not_there"}, {"means"}),
}


def ended(kind: str | None, result: str, **fields: Any) -> dict[str, Any]:
    """Return a final transaction. `fields` replace members of the outcome."""
    done = result == "approved"
    given = outcome(result, EVENT, **{"reached_acquirer": done, **fields})
    return transaction(type=kind, outcome=given, next_step="done" if done else "new_id_ok")


def said(kind: str | None) -> Iterator[str]:
    """Yield all texts of the command line about a transaction of this type."""
    running = transaction(type=kind)
    for result in Result:
        yield resolving(result, running)
        yield meaning(ended(kind, result))[1]
        yield meaning(ended(kind, result, reversal="refund"))[1]
        yield meaning(ended(kind, result, reached_acquirer=None))[1]
    yield from (attention_advice(code, running).words for code in AttentionCode)
    yield from (next_step({**running, "next_step": step}).words for step in NextStep)
    yield from (status_hint(status, running) for status in (None, *Status))
    yield from (words_of(running).fill(row["means"]) for row in chosen("search").values())
    yield hint(running)


@every("kind", KINDS, ids=str)
def test_the_texts_of_a_type_are_true_for_it(kind: str | None) -> None:
    words = list(said(kind))
    if kind not in ("charge", "capture", "refund"):
        assert [each for each in words if "customer was" in each or "customer may have been" in each] == []
        assert [
            each for each in words if "charge again" in each or "payment" in each.replace("the payment that", "")
        ] == []
    if kind not in ("charge", "pre-auth", "capture", "refund"):
        assert [each for each in words if "posd void" in each] == []
    assert not [each for each in words if set(each.replace("{terminal}", "")) & set("{}")]


@every("kind", KINDS, ids=str)
def test_only_an_approval_means_done_and_an_end_after_the_bank_was_asked_counts_as_open(
    kind: str | None,
) -> None:
    approved = operation(kind).approved
    for result in Result:
        words = meaning(ended(kind, result))[1]
        assert (words == approved) == (result is Result.APPROVED)
        by_person = transaction(type=kind, outcome=outcome(result, {"kind": "operator"}, reached_acquirer=None))
        assert meaning(by_person)[1] == f"By an operator's decision: {words}"
        if result is not Result.APPROVED:
            assert "may have been" in meaning(ended(kind, result, reached_acquirer=None))[1]
    assert (approved in meaning(ended(kind, "approved", reversal="refund"))[1]) == (kind != "void")
    assert ("charged" in operation(kind).done) == (kind in ("charge", "capture", "post-tip"))


def test_only_an_operation_that_needs_the_card_asks_for_the_card() -> None:
    running = transaction(phase="active", status="TERMINAL_ACKNOWLEDGED")
    asking = {kind for kind in KINDS if "present the card" in hint({**running, "type": kind})}
    assert asking == {kind for kind in KINDS if state({**running, "type": kind}) == "waiting for card"}
    assert asking == {"charge", "pre-auth"}


def test_a_text_of_a_later_version_is_shown_unchanged() -> None:
    odd = "dance_{noun}"
    assert status_hint(odd, transaction()) == f"the terminal says {odd}"
    assert next_step(transaction(next_step=odd)) == (odd, ())
    assert odd in meaning(ended("void", "approved", reversal=odd))[1]
    assert attention_advice(odd, transaction()).commands == ("posd show {id}",)
    assert refused_step(odd) == refused_step("ask_person")


@pytest.mark.parametrize(
    ("fields", "reference", "name"),
    [
        ({"type": "pre-auth"}, OTHER_ID, ID),
        ({"type": "pre-auth"}, None, "--reference UUID"),
        ({"type": "re-auth", "original": OTHER_ID}, "r", OTHER_ID),
        ({"type": "re-auth"}, "r", "--reference r"),
        ({"type": "re-auth", "original": OTHER_ID}, None, "--reference UUID"),
    ],
)
def test_a_reservation_is_captured_or_voided_by_its_name(
    fields: dict[str, Any], reference: str | None, name: str
) -> None:
    done = outcome("approved", EVENT, reached_acquirer=True, transaction_reference=reference)
    reserved = transaction(outcome=done, next_step="done", **fields)
    assert next_step(reserved).commands == (
        f"posd capture {name} AMOUNT".replace("UUID AM", "UUID AM"),
        f"posd void {name}",
    )
    used = next_step({**reserved, "derived": [OTHER_ID]}).words
    assert used.endswith("unless one of the two was done meanwhile.")
    assert ("unless" in next_step(reserved).words) == (fields["type"] == "re-auth")
    assert outcome_pairs(reserved)[-2:] == [("", command) for command in next_step(reserved).commands]


@pytest.mark.parametrize("serial", ["SN-0099", "SN-0001", "", None])
def test_an_outcome_names_the_terminal_that_ran_the_payment(serial: str | None) -> None:
    terminal = {"serial_number": serial} if serial is not None else "odd"
    done = {**outcome("approved", EVENT), "final_event": {"terminal": terminal}}
    shown = dict(outcome_pairs(transaction(outcome=done, next_step="done", terminal="SN-0001")))["terminal"]
    assert shown == ("SN-0099, though SN-0001 was asked" if serial == "SN-0099" else "SN-0001")


def commands() -> Iterator[str]:
    """Yield each command in an advice about a payment."""
    for abortable in (True, False):
        for code in (*AttentionCode, "unknown"):
            yield from attention_advice(code, transaction(abortable=abortable)).commands
    for row in chosen("advice").values():
        yield from (line.format(id="{id}", name=ID) for line in row.get("commands", ()))


@every("command", sorted(set(commands())))
def test_a_named_command_is_valid_and_fits_in_a_line(command: str) -> None:
    typed = command.format(id=ID)
    assert len("    " + typed) <= 80
    parse(words_of_line(typed.replace("RESULT", "approved").replace("AMOUNT", "1")))


def test_an_advice_acknowledges_only_its_code_and_no_refused_abort() -> None:
    for code in AttentionCode:
        named = attention_advice(code, transaction(abortable=False)).commands
        assert not [command for command in named if command.startswith("posd abort")]
        assert {each.split()[-1] for each in named if each.startswith("posd acknowledge")} <= {code}
    assert "posd abort {id}" in attention_advice("stalled", transaction()).commands


def test_every_operation_type_has_a_command_with_a_complete_short_help() -> None:
    context = click.Context(main)
    assert {row.type for row in STARTS} == {str(kind) for kind in OperationType}
    assert {row.name for row in STARTS} <= POSD_COMMANDS.keys()
    for row in STARTS:
        command = main.get_command(context, row.name)
        assert command is not None
        assert command.get_short_help_str(limit=80 - len("  acknowledge  ")) == row.words["does"]
    void = main.get_command(context, "void")
    assert void is not None
    options = {option for parameter in void.params for option in parameter.opts}
    assert {typed.split()[0] for typed in SPELLINGS.values()} <= options


def test_every_text_of_the_catalogue_is_used() -> None:
    source = "\n".join(file.read_text("utf-8").lower() for file in Path(str(cli.__file__)).parent.rglob("*.py"))
    said = {**chosen("says"), "report": chosen("report")["says"]}
    for command, texts in said.items():
        for name, text in texts.items():
            assert name in source or name.partition("_")[2] in source or name.split("_")[-1] in source, name
            for _, field, _, _ in Formatter().parse(text):
                assert not field or f"{field}=" in source or f'"{field}"' in source, f"{command}.{name}: {field}"
