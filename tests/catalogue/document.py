"""docs/reference/scenarios.md. `python -m tests.catalogue` writes each row of its tables from a scenario file."""

import re
from pathlib import Path

from posd.simulator.scenario import PrintScenario, Scenario, payments, prints
from tests.catalogue.expected import Expect, PrintExpect, expect_of, print_expect_of

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "scenarios.md"
ROW = re.compile(r"^\| `([\w-]+)` \|.*$", re.MULTILINE)


def themes() -> dict[str, list[str]]:
    """Return the scenarios in the table of each section of the document. The last section has the print scenarios."""
    sections = DOCUMENT.read_text("utf-8").split("\n## ")[1:]
    return {section.partition("\n")[0]: ROW.findall(section) for section in sections}


def document() -> str:
    """Return the document with all rows written again."""
    before, heading, after = DOCUMENT.read_text("utf-8").partition("\n## Printing\n")
    return ROW.sub(lambda row: _payment(row[1]), before) + heading + ROW.sub(lambda row: _print(row[1]), after)


def _payment(name: str) -> str:
    scenario = payments()[name]
    return f"| `{name}` | {scenario.amount or ''} | {_story(scenario)} | {_said(scenario)} |"


def _print(name: str) -> str:
    scenario = prints()[name]
    return f"| `{name}` | {_story(scenario)} | {_printed(print_expect_of(scenario))} |"


def _story(scenario: Scenario | PrintScenario) -> str:
    return f"{scenario.summary}<br>*{scenario.when}*"


def _joined(*parts: tuple[object, str]) -> str:
    """Join the texts whose condition is true."""
    return "; ".join(text for condition, text in parts if condition)


def _said(scenario: Scenario) -> str:
    expect = expect_of(scenario)
    result = expect.result or {"in_doubt": "in doubt", "active": "stays active"}[expect.phase]
    words = _joined(
        (True, f"**{result}**"),
        (expect.supersedes, f"corrected from {expect.supersedes}"),
        (expect.evidence not in ("event", None), f"by {expect.evidence}"),
        (expect.abort, f"the abort is answered `{expect.abort}`"),
        (expect.charges > 1, f"*charged {expect.charges} times*"),
        (expect.charges == 1 and expect.result != "approved", "*charged*"),
        *_attention(expect),
        (True, f"next: `{expect.next_step}`"),
    )
    return f"{words}<br>{scenario.advice}" if scenario.advice else words


def _printed(expect: PrintExpect) -> str:
    end = (expect.status or "not accepted") if expect.phase == "final" else expect.phase.replace("_", " ")
    return _joined(
        (True, f"**{end}**"),
        (expect.decided_by, f"by {expect.decided_by}"),
        (expect.error_code, f"`{expect.error_code}`"),
        (expect.papers != (expect.status == "COMPLETED"), f"*printed copies: {expect.papers}*"),
        *_attention(expect),
    )


def _attention(expect: Expect | PrintExpect) -> list[tuple[object, str]]:
    passing = [code for code in expect.passed if code not in expect.attention]
    groups = {"attention": expect.attention, "in passing": passing}
    return [(codes, f"{name}: {', '.join(f'`{code}`' for code in codes)}") for name, codes in groups.items()]
