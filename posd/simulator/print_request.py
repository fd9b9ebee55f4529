"""The request that creates a print job (terminal API, Printing), and its document as a person reads it on paper.

The body of the creation is not published beyond its ids and `webhookUrl`; that the document stands under `document` is
an assumption. Where nothing stands there, the members beside the published ones are the document.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from posd.simulator.print_catalogue import CHOICE, prints
from posd.simulator.request import Refused, invalid, is_web_address, read_object

#: Characters of an id; those of the caller are its own business, but a device does not take a novel.
MAX_ID_CHARACTERS = 128
#: The members that are published.
PUBLISHED = ("printJobId", "externalReference", "webhookUrl")
DOCUMENT = "document"
#: The member of a document that is a plain text.
TEXT = "text"


@dataclass(frozen=True, slots=True)
class PrintRequest:
    """A request that can be read. `document` is what is printed; without `webhook_url` the end is told to nobody."""

    print_job_id: str
    external_reference: str
    webhook_url: str | None
    scenario: str
    document: Any


def read_print(raw: bytes, default_scenario: str) -> PrintRequest:
    """Read and check a request body.

    Raises Refused: 400 where the body is not a JSON object, 422 where a field cannot be, the message naming it.
    """
    body = read_object(raw)
    print_job_id = body.get("printJobId")
    if not (isinstance(print_job_id, str) and 0 < len(print_job_id) <= MAX_ID_CHARACTERS):
        raise invalid("printJobId", f"must be a text of 1 to {MAX_ID_CHARACTERS} characters")
    reference = body.get("externalReference", "")
    if not isinstance(reference, str):
        raise invalid("externalReference", "must be a text")
    url = body.get("webhookUrl")
    if url is not None and not is_web_address(url):
        raise invalid("webhookUrl", "must be an http or https URL")
    beside = {name: value for name, value in body.items() if name not in PUBLISHED}
    document = body.get(DOCUMENT, beside)
    if not document:
        raise invalid(DOCUMENT, "must be there: there is nothing to print")
    scenario = reference.removeprefix(CHOICE) if reference.startswith(CHOICE) else default_scenario
    if scenario not in prints():
        raise invalid("externalReference", f"must name a scenario after {CHOICE} (posd simulate --list shows them)")
    return PrintRequest(print_job_id, reference, url, scenario, document)


def print_claims(raw: bytes) -> dict[str, str | None]:
    """Find the id and the reference that a request bears, for the ledger, in a body that may be anything."""
    try:
        body = read_object(raw)
    except Refused:
        body = {}
    values = {"print_job_id": body.get("printJobId"), "external_reference": body.get("externalReference")}
    return {name: value if isinstance(value, str) else None for name, value in values.items()}


def on_paper(document: Any) -> str:
    """Lay a document out as text: its text where it has one, else each of its values on a line.

    What would steer a screen, a printer's own codes for example, is left out.
    """
    text = document.get(TEXT) if isinstance(document, dict) else document
    lines = text.splitlines() if isinstance(text, str) else _lines(document, "")
    return "\n".join("".join(c for c in line.expandtabs() if c.isprintable()).rstrip() for line in lines)


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Give the lines of a value that `wire.decode` has read: its depth is limited there."""
    named = value.items() if isinstance(value, dict) else (("", item) for item in value)
    for name, item in named:
        label = f"{name}: " if name else ""
        if isinstance(item, dict | list):
            if name:
                yield f"{indent}{name}:"
            yield from _lines(item, indent + "  " * bool(name))
        else:
            yield from (indent + line for line in f"{label}{_word(item)}".splitlines() or [""])


def _word(value: Any) -> str:
    """Write one value: a text as it is, null as nothing."""
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
