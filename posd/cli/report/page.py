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
from posd.cli.app.output import counted, money
from posd.cli.explain.catalogue import chosen
from posd.cli.report import charts, words
from posd.cli.report.view import SECTIONS, ReportView, Row

#: Payments in question that are named at the head of the page.
MOST_IN_QUESTION = 40
#: Payments that are named under one attention.
MOST_NAMED = 20


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


def write(report: ReportView) -> str:
    """Return the page."""
    page = _TEMPLATES.get_template("page.html.j2").render(
        report=report,
        attentions=_attentions(report),
        charts=charts.of(report),
        bar=charts.bar,
        patterns=charts.PATTERNS,
        amount=amount,
        clock=clock,
        counted=counted,
        captions=chosen("report")["section"],
        sections=SECTIONS,
        most_in_question=MOST_IN_QUESTION,
        most_named=MOST_NAMED,
        words=words,
    )
    return "\n".join(map(shown, page.split("\n"))) + "\n"


def amount(value: Decimal | int | None) -> Markup:
    """Write an amount; thousands stand apart to the eye alone, so that it is found and copied as a plain number."""
    if value is None:
        return Markup("&ndash;")
    number = Decimal(value)
    whole, point, places = money(number.copy_abs()).partition(".")
    *groups, last = f"{int(whole):,}".split(",")
    sign = "\N{MINUS SIGN}" if number.is_signed() else ""
    spaced = Markup().join(Markup('<i class="k">{}</i>').format(group) for group in groups)
    return Markup("{}{}{}{}{}").format(sign, spaced, last, point, places)


def clock(report: ReportView, row: Row, *, seconds: bool = False) -> str:
    """Write when a payment counts: without the date if that is the report's own."""
    local = report.local(row["at"])
    one = report.one_day and local.date() == report.days[0]
    return local.strftime(("" if one else "%Y-%m-%d ") + ("%H:%M:%S" if seconds else "%H:%M"))


def _attentions(report: ReportView) -> Mapping[tuple[str, str], Sequence[tuple[Row, str]]]:
    """Return code and advice -> the payments that it is about, each with its detail."""
    found: dict[tuple[str, str], list[tuple[Row, str]]] = {}
    for row in report.marked("attention"):
        for item in row["attention"]:
            advice = _ended(words.advice(item["code"], row).words.rstrip())
            detail = f": {item['detail']}" if item["detail"] else ""
            found.setdefault((item["code"], advice), []).append((row, detail))
    return found


def _ended(advice: str) -> str:
    """End advice that leads on to commands as a sentence: a page has no prompt to type them at."""
    for tail in ("; then:", ":"):
        if advice.endswith(tail):
            return advice.removesuffix(tail) + "."
    return advice
