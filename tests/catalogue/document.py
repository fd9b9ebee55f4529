"""docs/reference/scenarios.md, written from the scenario files: `python -m tests.catalogue` writes it anew."""

from collections.abc import Iterable
from pathlib import Path

from posd.simulator.scenario import Expect, PrintExpect, Scenario, payments, prints
from tests.catalogue.themes import THEMES

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "scenarios.md"

HEAD = """# Scenarios: every bad day, on request

The simulated terminal plays each of these on the real wire. Choose one

- by the **amount** of the payment, where the table has one: a till needs no special field;
- by the request's **metadata**: `{"scenario": "NAME"}`;
- by **option**, for every payment that chooses none: `posd simulate --scenario NAME`;
- **live**, for the next payment: by the key `s`, or by the control API, `POST /terminals/{serial}/scenario` with
  `{"name": "NAME"}`.

`posd simulate`, `posd demo --keep` and the tests of a till ([testing.md](../guides/testing.md)) take them all.

A certificate and an absence begin before the payment: those can be chosen by option and live alone. Each is a TOML
file: `posd simulate --show NAME` prints it, and a changed copy is played by `--scenario FILE.toml`. How to run the
simulator is told in [simulator.md](../guides/simulator.md).

The last column is what posd says in the end, with its default configuration. posd's own times are real: with a faster
terminal (`--speed`) it may end before posd shows `stalled` or `no_callback` in passing.

- the **result**, or that the payment stays open: *active* (the terminal has it) or *in doubt* (it is not known whether
  the terminal has it);
- the **attention** that is open then, for a person to look at; `in passing` is what was shown on the way;
- *charged* where money moved though the result does not say so, or moved more often than once;
- the till's **next step**: `done`; `new_id_ok` (not charged: pay again under a new id); `wait`; `ask_person`.

Every file is played against a real daemon by the test suite, and posd says what stands here.
"""

PRINTING = """
## Printing

Chosen by the job's `external_reference`, `print:NAME`; live, for the next job, by the same name; for every job by `posd
simulate --print-scenario NAME`. The last column is what posd says of the job in the end.
"""


def document() -> str:
    """Return the whole text."""
    parts = [HEAD]
    for title, theme in THEMES.items():
        rows = (_row(name, payments()[name]) for name in theme.names)
        parts.append(f"\n## {title}\n\n{theme.sentence}\n\n{_table(rows, 'amount')}")
    rows = ((f"`{name}`", _story(item.summary, item.when), _printed(item.expect)) for name, item in prints().items())
    parts.append(f"{PRINTING}\n{_table(rows)}")
    return "".join(parts)


def _table(rows: Iterable[tuple[str, ...]], *amount: str) -> str:
    head = ("scenario", *amount, "what happens, and *when in a shop*", "what posd says")
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _row(name: str, scenario: Scenario) -> tuple[str, ...]:
    return f"`{name}`", scenario.amount or "", _story(scenario.summary, scenario.when), _said(scenario)


def _story(summary: str, when: str) -> str:
    return f"{summary}<br>*{when}*"


def _said(scenario: Scenario) -> str:
    expect = scenario.expect
    parts = [f"**{_result(expect)}**"]
    if expect.supersedes is not None:
        parts.append(f"corrected from {expect.supersedes}")
    if expect.evidence not in ("event", None):
        parts.append(f"by {expect.evidence}")
    if expect.abort is not None:
        parts.append(f"the abort is answered {_code(expect.abort)}")
    if expect.charges > 1:
        parts.append(f"*charged {expect.charges} times*")
    elif expect.charges and expect.result != "approved":
        parts.append("*charged*")
    parts += _attention(expect)
    words = f"{'; '.join(parts)}; next: `{expect.next_step}`"
    return f"{words}<br>{scenario.advice}" if scenario.advice else words


def _result(expect: Expect) -> str:
    return expect.result or {"in_doubt": "in doubt", "active": "stays active"}[expect.phase]


def _printed(expect: PrintExpect) -> str:
    end = expect.status or "not accepted"
    parts = [f"**{end if expect.phase == 'final' else expect.phase.replace('_', ' ')}**"]
    if expect.decided_by is not None:
        parts.append(f"by {expect.decided_by}")
    if expect.error_code is not None:
        parts.append(_code(expect.error_code))
    if expect.papers != (expect.status == "COMPLETED"):
        parts.append(f"*papers: {expect.papers}*")
    return "; ".join(parts + _attention(expect))


def _attention(expect: Expect | PrintExpect) -> list[str]:
    parts = []
    if expect.attention:
        parts.append("attention: " + ", ".join(map(_code, expect.attention)))
    passing = [code for code in expect.passed if code not in expect.attention]
    if passing:
        parts.append("in passing: " + ", ".join(map(_code, passing)))
    return parts


def _code(word: str | int) -> str:
    return f"`{word}`"
