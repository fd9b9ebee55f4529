"""The till's request to print: parsing, checks, comparison, and the body for the terminal (local API, Print jobs).

Every fault is collected with its JSON Pointer. The document belongs to the till and goes to the terminal as the bytes
that the till wrote. The terminal API has the members `printJobId`, `externalReference` and `webhookUrl` of the request
(Printing). It has no member for the document. The name of that member is an assumption, and can be configured
(`print.document_member`).
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from posd.base.ids import ID_RULE, PrintJobId, is_print_job_id
from posd.base.json_types import WireFormat, deeper_than, encode
from posd.base.limits import MAX_DOCUMENT_BYTES
from posd.printing.entries import Dismissed, Resolved
from posd.printing.model import FINALS, PrintAttentionCode, PrintJob, PrintStatus
from posd.records.request import (
    MAX_FREE_FORM_DEPTH,
    MAX_SERIAL_CHARACTERS,
    AskedSerial,
    DecisionRow,
    FieldReader,
    RequestFault,
    Signed,
    differing,
    read_body,
)

#: Longest reference of the till, in characters. The terminal API has no limit.
MAX_REFERENCE_CHARACTERS = 256

_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])

Decision = Resolved | Dismissed


class PrintRequest(msgspec.Struct, frozen=True):
    """Request of a till to print a document.

    `terminal` is None if the till named none. `document` is a JSON text.
    """

    terminal: Annotated[
        AskedSerial | None, Meta(description="serial number of the terminal; optional if the fleet has exactly one")
    ] = None
    external_reference: Annotated[
        str,
        WireFormat(Annotated[str, Meta(max_length=MAX_REFERENCE_CHARACTERS)] | None),
        Meta(description="the till's reference; the terminal's webhooks repeat it"),
    ] = ""
    document: Annotated[
        bytes,
        WireFormat(dict[str, object], required=True),
        Meta(
            description=f"the document to print, sent unchanged; at most {MAX_DOCUMENT_BYTES} bytes and "
            f"{MAX_FREE_FORM_DEPTH} levels deep"
        ),
    ] = b"{}"
    reprint_of: Annotated[PrintJobId | None, Meta(description="the print job that this one reprints")] = None


class PrintResolution(Signed, frozen=True):
    """Operator's decision about how a print job ended."""

    result: Annotated[Literal[PrintStatus.COMPLETED, PrintStatus.FAILED], Meta(description="how it ended")]


class PrintAcknowledgement(Signed, frozen=True):
    """Operator's request to close an attention."""

    code: Annotated[PrintAttentionCode, Meta(description="code of the attention")]


def read_print(body: bytes) -> tuple[PrintRequest, tuple[RequestFault, ...]]:
    """Read the body of `PUT /print-jobs/{id}`. Return the request and its faults.

    Raise Problem malformed_json if the body is not JSON. A faulty field has its default value in the request.
    """
    reader = read_body(PrintRequest, body, "nothing was printed")
    if not reader.readable:
        return PrintRequest(), tuple(reader.faults)
    request = PrintRequest(
        terminal=reader.text("terminal", MAX_SERIAL_CHARACTERS),
        external_reference=reader.text("external_reference", MAX_REFERENCE_CHARACTERS, least=0) or "",
        document=_document(reader, body),
        reprint_of=reader.parsed("reprint_of", _chosen_id),
    )
    return request, tuple(reader.faults)


def _document(reader: FieldReader, body: bytes) -> bytes:
    if not isinstance(reader.members.get("document"), dict):
        reader.fault("/document", "is required: an object, which is sent to the terminal unchanged")
        return b"{}"
    raw = bytes(_RAW.decode(body)["document"]).strip()
    if len(raw) > MAX_DOCUMENT_BYTES:
        reader.fault("/document", f"must be at most {MAX_DOCUMENT_BYTES} bytes, is {len(raw)}")
    if deeper_than(raw, MAX_FREE_FORM_DEPTH):
        reader.fault("/document", f"must be nested at most {MAX_FREE_FORM_DEPTH} levels deep")
    return raw


def _chosen_id(value: object) -> str:
    if not isinstance(value, str) or not is_print_job_id(value):
        raise ValueError(f"is the id of a print job and {ID_RULE}")
    return value


def differing_fields(job: PrintJob, request: PrintRequest, faults: tuple[RequestFault, ...]) -> list[str]:
    """Return the names of the fields in which a repeated call differs from the recorded request.

    The request of an orphan is unknown, so nothing differs.
    """
    if request.reprint_of and job.reprint_of and request.reprint_of.lower() == job.reprint_of.lower():
        request = msgspec.structs.replace(request, reprint_of=job.reprint_of)
    return [] if job.orphan else differing(request, job, faults)


def print_body(job: PrintJob, callback_url: str, document_member: str) -> bytes:
    """Return the body of the request that creates a job.

    `document_member`: name of the member for the document. If it is empty, the members of the document are added to
    those of posd, and cannot replace these. `events_webhook_url` is for transactions only (terminal API, Printing).
    """
    own: dict[str, Any] = {
        "printJobId": job.print_job_id,
        "externalReference": job.external_reference,
        "webhookUrl": callback_url,
    }
    if document_member:
        return encode(own | {document_member: msgspec.Raw(job.document)})
    return encode(own | {name: value for name, value in _RAW.decode(job.document).items() if name not in own})


def _resolve(reader: FieldReader, operator: str, note: str, uid: int | None) -> Resolved:
    return Resolved(operator, note, uid, reader.choice("result", sorted(FINALS)))


def _acknowledge(reader: FieldReader, operator: str, note: str, uid: int | None) -> Dismissed:
    return Dismissed(operator, note, uid, reader.choice("code", list(PrintAttentionCode)))


#: Name of a call with an operator's decision -> reader and type of its body.
DECISIONS: Mapping[str, DecisionRow[Decision]] = {
    "resolve": (_resolve, PrintResolution),
    "acknowledge": (_acknowledge, PrintAcknowledgement),
}
