"""docs/reference/scenarios.md, generated from the scenario files by `python -m tests.catalogue`."""

from collections.abc import Iterable
from pathlib import Path

from posd.simulator.scenario import PrintScenario, Scenario, payments, prints
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
        found = [(f"`{name}`", payments()[name]) for name in theme.names]
        rows = [(name, item.amount or "", _story(item), _said(item)) for name, item in found]
        parts.append(f"\n## {title}\n\n{theme.sentence}\n\n{_table(rows, 'amount')}")
    jobs = [(f"`{name}`", _story(item), _printed(print_expect_of(item))) for name, item in prints().items()]
    return "".join([*parts, f"{PRINTING}\n{_table(jobs)}"])


def _table(rows: Iterable[tuple[str, ...]], *amount: str) -> str:
    head = ("scenario", *amount, "what happens, and *when in a shop*", "what posd says")
    lines = (head, ("---",) * len(head), *rows)
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


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
        (expect.papers != (expect.status == "COMPLETED"), f"*papers: {expect.papers}*"),
        *_attention(expect),
    )


def _attention(expect: Expect | PrintExpect) -> list[tuple[object, str]]:
    passing = [code for code in expect.passed if code not in expect.attention]
    groups = {"attention": expect.attention, "in passing": passing}
    return [(codes, f"{name}: {', '.join(f'`{code}`' for code in codes)}") for name, codes in groups.items()]
