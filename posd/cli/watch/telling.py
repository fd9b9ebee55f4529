"""What is told of one row: a few lines below the lists, a page that scrolls."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posd.cli.app.advice import Advice, attention_advice, next_step
from posd.cli.app.output import Pair, asked, inline, moment
from posd.cli.payments import words
from posd.cli.payments.progress import event_extra, outcome_pairs
from posd.cli.payments.show import Link, transaction_pairs
from posd.cli.payments.words import words_of
from posd.cli.printing import progress as print_words
from posd.cli.printing.progress import job_pairs
from posd.cli.terminals.rows import why
from posd.cli.watch.screen import BINDINGS, Line, at_most, fit, wrap
from posd.cli.watch.state import Document, Kind, Page, Row

#: Cells of the labels of a page; narrower where the screen is narrow.
LABELS = 22

HELP = """\
TERMINALS  those of the configuration: whether they answer, what they run, when they were last heard of.

OPEN  payments that have not ended, oldest first, and print jobs. A payment goes from ack (the terminal has it) over \
card (card read) and bank (approval asked for) to its end: approved, declined, rejected or canceled. The present state \
stands in brackets. It stays for a few seconds after its end.

ATTENTION  what a person should look at. What to do about the selected row stands below the lists; Enter shows all of \
it, with the commands to type.

The last hour is counted from posd's feed: payments that began and ended in it, how many were approved, within what \
time half of them and 95% of them had an outcome, and how many ended in the last minute.

Nothing is asked of posd while nothing happens, but a look every 10 seconds. An abort is a request: the customer may \
have been faster."""


def heading(row: Row) -> str:
    """Return what names a row in one line."""
    if row.kind is Kind.TERMINAL:
        return f"terminal {row.identity}"
    noun = "print job" if row.kind is Kind.PRINT_JOB else noun_of(row.document)
    return f"{noun} {row.identity}"


def noun_of(document: Mapping[str, Any]) -> str:
    """Return what a transaction is called."""
    return words_of(document).noun


def what(row: Row) -> str:
    """Return what a question names: "the payment of 11.20 on SN-0001"."""
    amount = asked(row.document.get("amount"))
    return f"the {noun_of(row.document)}{f' of {amount}' if amount else ''} on {row.document['terminal']}"


def advice_of(row: Row) -> tuple[str, Advice]:
    """Return what is known of a row beyond its line, and what to do about it."""
    document = row.document
    if row.kind is Kind.TERMINAL:
        return "", Advice("; ".join(why(document)) or str(document["base_url"] or "no address is known"))
    if row.attention is not None:
        detail = str(row.attention.get("detail") or "")
        if row.kind is Kind.PRINT_JOB:
            return detail, print_words.attention_advice(row.attention["code"])
        return detail, attention_advice(row.attention["code"], document)
    if row.kind is Kind.PRINT_JOB:
        return _sentence(print_words.hint(document)), print_words.next_step(document)
    if row.ended is not None:
        _, template = words.RESULTS.get(row.ended["result"], ("", "It ended: {noun}."))
        return "", Advice(words_of(document).fill(template), ("posd show {id}",))
    return _sentence(words.hint(document)), next_step(document)


def below(row: Row, room: int, most: int) -> list[Line]:
    """Return what stands below the lists of the selected row, in at most `most` lines: the commands come last."""
    advice = advice_of(row)[1]
    commands = "   ".join(command.format(id="ID") for command in advice.commands)
    told = wrap(_told(row), room)
    typed = wrap(commands, room)[:1] if commands else []
    told = at_most(told, most - len(typed), room)
    return [*(((line, ""),) for line in told), *(((line, "cyan"),) for line in typed)]


def in_full(row: Row, room: int) -> list[Line]:
    """Return all that is told of a row, and the commands as they are typed, which nothing breaks."""
    commands = [command.format(id=row.identity) for command in advice_of(row)[1].commands]
    return [*(((line, ""),) for line in wrap(_told(row), room)), *(((line, "cyan"),) for line in commands)]


def _told(row: Row) -> str:
    detail, advice = advice_of(row)
    return " ".join(filter(None, (_sentence(detail) if detail else "", advice.words)))


def page_lines(page: Page, room: int) -> list[Line]:
    """Return all lines of a page."""
    if page.of is None:
        return list(_help(room))
    if page.told is None:
        return [(("asking posd …", "dim"),)]
    return list(_all_of(page.of, page.told, room))


def _help(room: int) -> Iterator[Line]:
    for binding in BINDINGS:
        for number, line in enumerate(wrap(binding.words, max(1, room - 9))):
            yield ((fit("" if number else binding.keys, 8), "bold"), (f" {line}", ""))
    yield ()
    for line in wrap(HELP, room):
        yield ((line, ""),)


def _all_of(row: Row, told: Document, room: int) -> Iterator[Line]:
    if "problem" in told:
        yield from (((line, "red"),) for line in wrap(str(told["problem"]), room))
        return
    document = told["document"]
    match row.kind:
        case Kind.TERMINAL:
            yield from _labelled(
                [(name, _value(name, value)) for name, value in document.items() if name != "runs"], room
            )
            return
        case Kind.PRINT_JOB:
            yield from _labelled(job_pairs(document), room)
            advices = [(item, print_words.attention_advice(item["code"])) for item in document["attention"]]
        case Kind.PAYMENT:
            yield from _labelled(transaction_pairs(document), room)
            yield from _labelled([(link.relation, _link_text(link)) for link in told["chain"]], room)
            if document["outcome"] is not None:
                yield from _head("outcome")
                style, meaning = words.meaning(document)
                yield from (((line, style),) for line in wrap(meaning, room))
                yield from _labelled(outcome_pairs(document), room)
            advices = [(item, attention_advice(item["code"], document)) for item in document["attention"]]
    for attention, advice in advices:
        yield from _head(f"attention {attention['code']}", "bold yellow")
        yield from (((line, ""),) for line in wrap(str(attention.get("detail") or ""), room) if line)
        yield from (((line, ""),) for line in wrap(advice.words, room))
        for command in advice.commands:
            yield from (((line, "cyan"),) for line in wrap(command.format(id=row.identity), room))
    yield from _head("what happened")
    extras = {item["seq"]: event_extra(item["event"]) for item in told["events"]}
    for when, happened, details in words.rows(told["history"], extras):
        for number, line in enumerate(wrap(", ".join(filter(None, (happened, details))), max(1, room - 16))):
            yield ((fit("" if number else when, 15), "dim"), (f" {line}", ""))


def _link_text(link: Link) -> str:
    """Write a transaction beside another: what it is, how it stands, and its id."""
    if link.transaction is None:
        return f"{link.transaction_id} ({link.why})"
    other = link.transaction
    parts = (other["type"], asked(other["amount"]), words.state(other), link.transaction_id)
    return "  ".join(str(part) for part in parts if part)


def _head(text: str, style: str = "bold") -> Iterator[Line]:
    yield ()
    yield ((text, style),)


def _labelled(pairs: Sequence[Pair], room: int) -> Iterator[Line]:
    labels = min(LABELS, room // 3)
    for label, value in pairs:
        for number, line in enumerate(wrap(value, max(1, room - labels - 1))):
            yield ((fit("" if number else label, labels), "dim"), (f" {line}", ""))


def _value(name: str, value: object) -> str:
    if name in ("last_seen", "checked_at"):
        return moment(str(value), date=True) if value else "never"
    return inline(value) or "-"


def _sentence(text: str) -> str:
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", ":", "?", "!")) else ".")
