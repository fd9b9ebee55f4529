"""docs/reference/scenarios.md, generated from the scenario files by `python -m tests.catalogue`."""

from collections.abc import Iterable
from pathlib import Path

from posd.simulator.scenario import Scenario, payments, prints
from tests.catalogue.expected import Expect, PrintExpect, expect_of, print_expect_of
from tests.catalogue.themes import THEMES

DOCUMENT = Path(__file__).parents[2] / "docs" / "reference" / "scenarios.md"

HEAD = """# Scenarios of the simulated terminal

The simulated terminal plays each of these in the real wire format. Choose one

- by the **amount** of the payment, if the table has one;
- by the request's **metadata**: `{"scenario": "NAME"}`;
- by **option**, for all other payments: `posd simulate --scenario NAME`;
- **live**, for the next payment: by the key `s`, or by the control API, `POST /terminals/{serial}/scenario` with
  `{"name": "NAME"}`.

`posd simulate`, `posd demo --keep` and the sandbox ([testing.md](../guides/testing.md)) have all of them.

Faults that begin before the payment (a certificate, an absence) can be chosen by option or live only. Each scenario is
a TOML file: `posd simulate --show NAME` prints it, `--scenario FILE.toml` plays a changed copy.
[simulator.md](../guides/simulator.md) says how to run the simulator.

**While a payment has no outcome, wait under the same id. Never pay again under a new one.**

The last column is posd's final state, with its default configuration. posd's times are real: with a faster terminal
(`--speed`) a payment may end before posd shows `stalled` or `no_callback`.

- the **result**, or an open payment: *active* (the terminal has it) or *in doubt* (perhaps);
- the open **attention**; `in passing` was shown before;
- *charged* if money moved and the result does not say so, or moved more than once;
- the till's **next step**: `done`; `new_id_ok` (not charged: pay again under a new id); `wait`; `ask_person`. Then
  what to do.

The tests play every file against a real daemon and compare this table.
"""

PRINTING = """
## Printing

Choose one by the job's `external_reference`, `print:NAME`; live by the same name; for all other jobs by `posd simulate
--print-scenario NAME`. The last column is posd's final state of the job.
"""


def document() -> str:
    """Return the whole text."""
    parts = [HEAD]
    for title, theme in THEMES.items():
        rows = (_row(name, payments()[name]) for name in theme.names)
        parts.append(f"\n## {title}\n\n{theme.sentence}\n\n{_table(rows, 'amount')}")
    rows = (
        (f"`{name}`", _story(item.summary, item.when), _printed(print_expect_of(item)))
        for name, item in prints().items()
    )
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
    expect = expect_of(scenario)
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
