"""What needs a person, at the head of the page: nothing is shown where nothing does."""

from collections.abc import Sequence

from posd.cli.report.html.details import clock
from posd.cli.report.html.markup import Safe, amount, cell, table, tag
from posd.cli.report.sections import Payment
from posd.cli.report.sums import Report
from posd.cli.report.words import advice, in_totals, kind_name, notes, open_line, question, wrong_clocks

#: Payments in question that are named at the head of the page.
QUESTIONS = 40
#: Payments that are named under one attention.
NAMED = 20


def alert(report: Report) -> Safe:
    """Return what needs a person."""
    content = [*_questions(report), *_differing(report), *_unsure(report), *_attention(report), *_others(report)]
    if not content:
        return tag("p", "Nothing needs attention.", class_="well")
    return tag("section", tag("h2", "Needs attention"), *content, class_="alert")


def _questions(report: Report) -> list[Safe]:
    items = report.in_question
    if not items:
        return []
    rows = [
        (
            clock(report, item),
            cell(item.facts.terminal),
            kind_name(item.kind),
            amount(item.amount),
            in_totals(item),
            question(item),
            tag("span", item.facts.id, class_="id"),
        )
        for item in items[:QUESTIONS]
    ]
    columns = ("time", "terminal", "type", "amount", "counted", "what is not settled", "transaction")
    lead = [tag("p", line, class_="lead")] if (line := open_line(report)) else []
    found = table("In question: did money move?", columns, rows, numbers=("amount",), class_="rows")
    more = len(items) - QUESTIONS
    rest = [tag("p", f"And {more} more, marked below as in question.")] if more > 0 else []
    return [*lead, tag("div", found, class_="scroll"), *rest]


def _differing(report: Report) -> list[Safe]:
    if not report.differing:
        return []
    rows = [
        (*_named(report, item), amount(item.facts.requested), amount(item.facts.authorized), in_totals(item))
        for item in report.differing
    ]
    columns = ("time", "terminal", "type", "ticket", "asked for", "authorized", "authorized amount is")
    return [table("Authorized with another amount", columns, rows, numbers=("asked for", "authorized"), class_="rows")]


def _unsure(report: Report) -> list[Safe]:
    items = report.unsure
    if not items:
        return []
    rows = [(*_named(report, item), amount(item.amount), in_totals(item), "; ".join(notes(item))) for item in items]
    columns = ("time", "terminal", "type", "ticket", "amount", "counted", "why it is named here")
    return [table("By a person's word, or corrected since", columns, rows, numbers=("amount",), class_="rows")]


def _named(report: Report, item: Payment) -> tuple[str, Safe, str, Safe]:
    facts = item.facts
    return clock(report, item), cell(facts.terminal), kind_name(item.kind), cell(facts.ticket or facts.id)


def _attention(report: Report) -> list[Safe]:
    concerned: dict[tuple[str, str], list[Payment]] = {}
    for item in report.attention:
        for code, _ in item.facts.attention:
            words = advice(code, item).words.rstrip()
            concerned.setdefault((code, _ended(words)), []).append(item)
    found = []
    for (code, words), items in concerned.items():
        found += [tag("h3", f"{code.replace('_', ' ')} ({len(items)})"), tag("p", words), _list(items, code)]
    return found


def _ended(words: str) -> str:
    """End advice that leads on to commands as a sentence: a page has no prompt to type them at."""
    for tail in ("; then:", ":"):
        if words.endswith(tail):
            return words.removesuffix(tail) + "."
    return words


def _list(items: Sequence[Payment], code: str) -> Safe:
    lines = [
        tag(
            "li",
            tag("span", item.facts.id, class_="id"),
            f", {item.facts.terminal}, ",
            amount(item.amount),
            "".join(f": {detail}" for name, detail in item.facts.attention if name == code and detail),
        )
        for item in items[:NAMED]
    ]
    if len(items) > NAMED:
        lines.append(tag("li", f"and {len(items) - NAMED} more"))
    return tag("ul", *lines)


def _others(report: Report) -> list[Safe]:
    found = []
    if len(report.currencies) > 1:
        currencies = ", ".join(report.currencies)
        found.append(f"The totals add up amounts in several currencies ({currencies}): use those by currency.")
    if report.wrong_clocks:
        found.append(wrong_clocks(report))
    if report.elsewhere:
        found.append(f"Payments of other days that need attention too: {report.elsewhere} (posd list --attention).")
    return [tag("p", line) for line in found]
