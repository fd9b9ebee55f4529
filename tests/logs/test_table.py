"""The table of events agrees with the code, and the page is generated from the table."""

import re
from collections import defaultdict

import pytest

from manual.logs import markdown
from posd.cli.explain.catalogue import LogEvent, events
from posd.logs.output import FIELDS, LIMITS
from tests.logs.found import LOGGERS, PACKAGE, Line, NotPlain, lines, modules
from tests.support.tables import every, try_each

#: Events that the daemon can log.
EVENTS = events()


def wanted(event: str, found: list[Line]) -> str:
    """Return the row of an event that the code requires, in the form of the table."""
    levels = {level for line in found for level in line.levels}
    fields = {field for line in found for field in line.fields}
    return f'[event."{event}"]\n    levels = {sorted(levels)}\n    fields = "{" ".join(sorted(fields))}"'


def check_row(event: str, found: list[Line]) -> None:
    places = ", ".join(line.place for line in found)
    if event not in EVENTS:
        row = wanted(event, found)
        pytest.fail(f"{places} logs an event without a row; add to posd/cli/explain/en.toml and es.toml:\n    {row}")
    if not found:
        pytest.fail(f"nothing logs {event}; remove its row from posd/cli/explain/en.toml and es.toml")
    row = EVENTS[event]
    levels = {level for line in found for level in line.levels}
    fields = {field for line in found for field in line.fields}
    says = f"in posd/cli/explain/en.toml, by {places}, the row begins:\n    {wanted(event, found)}"
    assert set(row.levels) == levels, says
    if any(line.open for line in found):
        assert fields <= set(row.fields), says
    else:
        assert set(row.fields) == fields, says


def test_an_event_has_the_row_that_the_code_needs() -> None:
    found: dict[str, list[Line]] = defaultdict(list)
    for module in modules():
        for line in lines(module.read_text(), str(module.relative_to(PACKAGE.parent))):
            found[line.event].append(line)
    table = ((event, {"event": event, "found": found.get(event, [])}) for event in sorted(found.keys() | EVENTS.keys()))
    try_each(table, check_row)


@every(("event", "row"), EVENTS.items(), ids=EVENTS)
def test_each_row_is_used(event: str, row: LogEvent) -> None:
    assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", event), "the name of an event has words with dots between them"
    assert set(row.fields) <= FIELDS, "no line may have this field: add the field to FIELDS in posd/logs/output.py"
    assert set(re.findall(r"{(\w*)}", row.says)) <= set(row.fields)
    assert re.fullmatch(r"([^][]|\[[^][]*{[^][]*\])+", row.says), "a part in [ ] must have a field and no other part"
    assert row.do or not {"warning", "error", "critical"} & set(row.levels), (
        "`do` must say what people do after the event"
    )
    assert len(set(row.fields)) == len(row.fields)


def test_every_permitted_field_is_used_by_a_line() -> None:
    assert {field for row in EVENTS.values() for field in row.fields} == FIELDS


def test_limits_belong_to_existing_events() -> None:
    for event, limit in LIMITS.items():
        assert event in EVENTS
        assert set(limit.by) & set(EVENTS[event].fields) or not limit.by


def test_the_page_is_generated_from_the_table() -> None:
    page = PACKAGE.parent / "docs" / "reference" / "logs.md"
    assert page.read_text() == markdown(), f"write the page again: PYTHONPATH=packaging python -m manual --logs {page}"


def test_every_logger_has_a_name_by_which_its_lines_are_found() -> None:
    for module in modules():
        for line in module.read_text().splitlines():
            assert "structlog.get_logger(" not in line or line.partition(" = structlog.")[0] in LOGGERS, module


@pytest.mark.parametrize(
    "text",
    [
        "log.info(name)",
        "log.info(f'a.{b}')",
        "log.info('a.b', 'c')",
        "tell = log.info",
        "write = log.error if x else log.info\nwrite('a.b')",
        "log.bind(a=1).info('a.b')",
        "f(log)",
    ],
)
def test_calls_that_cannot_be_compared_are_found(text: str) -> None:
    with pytest.raises(NotPlain):
        list(lines(text, "x.py"))


def test_log_lines_are_found_in_the_source() -> None:
    text = "(log.error if a else log.warning)('a.b', c=1, exc_info=e)\ndef f():\n    log.exception('c.d', **g)\n"
    assert list(lines(text, "x.py")) == [
        Line("x.py:1", "a.b", frozenset({"error", "warning"}), frozenset({"c"}), open=False),
        Line("x.py:3", "c.d", frozenset({"error"}), frozenset(), open=True),
    ]


def test_a_line_of_either_kind_of_record_is_found_once_for_each_kind() -> None:
    assert list(lines('log.info(f"{kind.word}.sent", **self.kind.named(identity), terminal=t)', "x.py")) == [
        Line("x.py:1", "payment.sent", frozenset({"info"}), frozenset({"transaction", "terminal"}), open=False),
        Line("x.py:1", "print.sent", frozenset({"info"}), frozenset({"print_job", "terminal"}), open=False),
    ]
