"""A payment's history and an outcome's evidence in plain words; what is not known here is shown with its fields."""

from collections.abc import Iterable, Mapping
from decimal import Decimal
from string import Formatter
from typing import Any

from posd.cli.app.output import inline, moment
from posd.cli.payments.words import (
    ABORT_ANSWERS,
    DETAILS,
    EVIDENCE,
    INTERRUPTIONS,
    JUDGEMENTS,
    KINDS,
    SEARCH_ENTRIES,
    VALUE_DETAILS,
)

#: kind -> the field whose value says what happened, and its words.
BY_FIELD: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "attempt": ("judgement", JUDGEMENTS),
    "search": ("result", SEARCH_ENTRIES),
    "abort_answered": ("answer", ABORT_ANSWERS),
    "interrupted": ("in_line", INTERRUPTIONS),
}

#: fields that have a column of their own, or number the entry for programs.
NOT_DETAILS = frozenset({"at", "kind", "seq"})


def rows(history: Iterable[Mapping[str, Any]], events: Mapping[int, str]) -> list[tuple[str, str, str]]:
    """Return the history's table: time, what happened, details. `events` adds to an event what it says, by its seq."""
    table = []
    for entry in history:
        what, told = happened(entry)
        parts = (events.get(entry.get("seq", 0), ""), details(entry, told))
        table.append((moment(entry["at"], date=True)[5:], what, ", ".join(filter(None, parts))))
    return table


def happened(entry: Mapping[str, Any]) -> tuple[str, set[str]]:
    """Return what an entry of the history says happened, and which of its fields that tells already."""
    kind = entry["kind"]
    field, words = BY_FIELD.get(kind, ("", {}))
    if str(entry.get(field)) in words:
        return words[str(entry[field])], {field}
    if kind not in KINDS:
        return str(kind), set()
    template = KINDS[kind]
    named = {name for _, name, _, _ in Formatter().parse(template) if name}
    return template.format_map({name: _plain(entry.get(name)) for name in named}), named


def details(fields: Mapping[str, Any], told: Iterable[str] = ()) -> str:
    """Write the fields of a history entry or an evidence in words, but those `told` already and empty ones."""
    left = {name: value for name, value in fields.items() if name not in NOT_DETAILS and name not in told}
    known = [name for name in DETAILS if name in left]
    parts = [_detail(name, left[name]) for name in (*known, *(name for name in left if name not in DETAILS))]
    return ", ".join(filter(None, parts))


def evidence_text(evidence: Mapping[str, Any]) -> str:
    """Write one proof of an outcome: what it is, when it came, and its fields."""
    kind = evidence["kind"]
    head = f"{EVIDENCE.get(kind, kind)} ({moment(evidence['at'], date=True)[5:]})"
    rest = details(evidence)
    return f"{head}: {rest}" if rest else head


def superseded_text(outcome: Mapping[str, Any]) -> str:
    """Write an outcome that was corrected: what it was, and on what it rested."""
    return f"was {outcome['result']}: {'; '.join(map(evidence_text, outcome['evidence']))}"


def _detail(name: str, value: Any) -> str:
    if name == "evidence":
        return "; ".join(map(evidence_text, value))
    words = VALUE_DETAILS.get(name, {})
    if isinstance(value, str | bool) and value in words:
        return words[value]
    text = _plain(value)
    if not text:
        return ""
    return DETAILS[name].format(text) if name in DETAILS else f"{name} {text}"


def _plain(value: object) -> str:
    return inline(value).removesuffix(".0") if isinstance(value, Decimal) else inline(value)
