"""Each scenario of the catalogue has a theme and a description. The document matches the files."""

from collections import Counter
from decimal import Decimal

from posd.payments.model import AttentionCode, EvidenceKind, NextStep, Result
from posd.records.model import Phase
from posd.simulator.scenario import payments, prints
from tests.catalogue.document import DOCUMENT, document, themes
from tests.catalogue.expected import expect_of
from tests.catalogue.playing import QUICK
from tests.rig.tables import every


def test_every_file_is_in_one_table() -> None:
    *of_payments, of_prints = themes().values()
    assert Counter(name for names in of_payments for name in names) == Counter(list(payments()))
    assert Counter(of_prints) == Counter(list(prints()))


def test_the_quick_suite_has_scenarios_of_each_theme() -> None:
    assert set(payments()) >= QUICK
    assert [title for title, names in themes().items() if not QUICK & set(names)] == ["Printing"]


@every("name", [*payments(), *prints()])
def test_each_scenario_is_described_in_sentences(name: str) -> None:
    scenario = payments().get(name) or prints()[name]
    for text in (scenario.summary, scenario.when, scenario.advice or "."):
        assert text == text.strip()
        assert text.endswith((".", "!", "?"))
        assert "|" not in text, "the description is a cell of a table, so it must not contain this"
        assert text[0].isupper() or text == "."


@every("name", payments())
def test_each_scenario_states_the_result_as_the_local_api_names_it(name: str) -> None:
    expect = expect_of(payments()[name])
    assert (expect.result in set(Result)) == (expect.phase == Phase.FINAL)
    assert (expect.evidence in set(EvidenceKind)) == (expect.phase == Phase.FINAL)
    assert expect.phase in set(Phase)
    assert {*expect.attention, *expect.passed} <= set(AttentionCode)
    assert expect.next_step in set(NextStep)


def test_no_two_scenarios_share_an_amount_or_a_text() -> None:
    amounts = [Decimal(item.amount) for item in payments().values() if item.amount is not None]
    assert len(set(amounts)) == len(amounts)
    summaries = [item.summary for item in payments().values()]
    assert len(set(summaries)) == len(summaries)


def test_an_open_or_unexpected_charge_has_an_attention() -> None:
    for name, scenario in payments().items():
        expect = expect_of(scenario)
        if expect.phase != Phase.FINAL or (expect.charges != (expect.result == Result.APPROVED)):
            assert expect.attention, name


def test_each_row_of_the_document_equals_its_file() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == document(), "write the document again: python -m tests.catalogue"
