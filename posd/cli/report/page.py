"""The report as one HTML page that needs nothing else: no script, no font, no request.

What needs a person stands first; then the totals, the charts, and each payment. On paper each part begins a page.
The page itself is page.html.j2.
"""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from posd.base.text import shown
from posd.cli.report import charts, sums, words
from posd.cli.report.expect import Comparison
from posd.cli.report.facts import money
from posd.cli.report.standing import Payment, Section
from posd.cli.report.sums import Report

#: Payments that the page shows: beyond it a browser becomes slow; a CSV has them all.
MOST = 10_000
#: Payments in question that are named at the head of the page.
MOST_IN_QUESTION = 40
#: Payments that are named under one attention.
MOST_NAMED = 20

#: section -> its caption.
CAPTIONS: Mapping[Section, str] = {
    Section.COUNTED: "Counted in the totals",
    Section.RESERVED: "Reserved, not charged",
    Section.NOT_CHARGED: "Not charged",
    Section.UNCLEAR: "Approved, not counted: type or amount not known",
    Section.OPEN: "Open, not counted",
}


def _written(value: object) -> object:
    """Return what stands in the page for a value: a text in one line. What is markup already was made of such."""
    return shown(value) if isinstance(value, str) and not isinstance(value, Markup) else value


_TEMPLATES = Environment(
    autoescape=True,
    finalize=_written,
    loader=FileSystemLoader(Path(__file__).parent),
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)


def write(report: Report, *, metadata: str | None = None, comparison: Comparison | None = None) -> str:
    """Return the page; `metadata` names the member of the metadata that is shown, `comparison` is with the terminal's
    own total.
    """
    page = _TEMPLATES.get_template("page.html.j2").render(
        report=report,
        comparison=comparison,
        metadata=metadata,
        attentions=_attentions(report),
        charts=charts.of(report),
        bar=charts.bar,
        patterns=charts.PATTERNS,
        amount=amount,
        clock=clock,
        captions=CAPTIONS,
        most=MOST,
        most_in_question=MOST_IN_QUESTION,
        most_named=MOST_NAMED,
        sums=sums,
        words=words,
    )
    return "\n".join(map(shown, page.split("\n"))) + "\n"


def amount(value: Decimal | None) -> Markup:
    """Write an amount; thousands stand apart to the eye alone, so that it is found and copied as a plain number."""
    if value is None:
        return Markup("&ndash;")
    whole, point, places = money(value.copy_abs()).partition(".")
    *groups, last = f"{int(whole):,}".split(",")
    sign = "\N{MINUS SIGN}" if value.is_signed() else ""
    spaced = Markup().join(Markup('<i class="k">{}</i>').format(group) for group in groups)
    return Markup("{}{}{}{}{}").format(sign, spaced, last, point, places)


def clock(report: Report, item: Payment, *, seconds: bool = False) -> str:
    """Write when a payment counts: without the date where that is the report's own."""
    local = report.span.local(item.facts.at)
    one = len(report.span.days) == 1 and local.date() == report.span.first
    return local.strftime(("" if one else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M"))


def _attentions(report: Report) -> Mapping[tuple[str, str], Sequence[tuple[Payment, str]]]:
    """Return code and advice -> the payments that it is about, each with its details."""
    found: dict[tuple[str, str], list[tuple[Payment, str]]] = {}
    for item in report.attention:
        for code, _ in item.facts.attention:
            details = (f": {detail}" for name, detail in item.facts.attention if name == code and detail)
            advice = _ended(words.advice(code, item).words.rstrip())
            found.setdefault((code, advice), []).append((item, "".join(details)))
    return found


def _ended(advice: str) -> str:
    """End advice that leads on to commands as a sentence: a page has no prompt to type them at."""
    for tail in ("; then:", ":"):
        if advice.endswith(tail):
            return advice.removesuffix(tail) + "."
    return advice
