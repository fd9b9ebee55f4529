"""Terminal profile: the HTTP request of each operation, for terminals on the local network and in the cloud.

Each edition of the vendor's documents has a table. The terminal API documents only the charge. Every other row is an
assumption from public vendor material. posd uses these rows, but a reply proves nothing before an operator has
confirmed its row. The operator sets `confirmed = true` in the configuration, or commissions the terminal
(`terminals.identity`). The configuration can replace each row by the rules of `replace_row`.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

from posd.base.operations import OPERATIONS

AccessMode = Literal["local", "cloud"]
#: Edition of the vendor's documents: the older edition, or that of 2026.
Edition = Literal["classic", "2026"]
Method = Literal["GET", "POST"]

ACCESS_MODES: Final[tuple[AccessMode, ...]] = ("local", "cloud")
EDITION_NAMES: Final[tuple[Edition, ...]] = ("classic", "2026")
TERMINAL_SERIAL: Final = "terminal_serial"
PRINT_JOB_ID: Final = "print_job_id"
CLIENT_TRANSACTION_ID: Final = "client_transaction_id"

#: Operation -> its own placeholder, which no other operation has.
OWN_PLACEHOLDERS: Final[Mapping[str, str]] = {"print-job": PRINT_JOB_ID, "search": CLIENT_TRANSACTION_ID}


class OperationRow(msgspec.Struct, frozen=True):
    """Request of one operation. `path` may contain `{placeholders}`.

    Only the search has `pointer` (JSON Pointer to the transactions in the reply; "": the whole reply) and `paged`
    (whether a reply has one page of a list). Only starts of payments have `abortable` (whether the POS can abort the
    operation) and `errors_in_2xx` (whether an error in a 2xx reply means "not started"). Only printing has
    `document_member` (member with the printed document; "": the document's members are added to posd's).
    """

    method: Method
    path: str
    confirmed: bool = False
    pointer: str = ""
    paged: bool = False
    abortable: bool = True
    errors_in_2xx: bool = False
    document_member: str = ""


Table = Mapping[str, OperationRow]


def _starts(prefix: str) -> Table:
    return {
        str(kind): OperationRow("POST", f"{prefix}/async/{row.path}", confirmed=row.published)
        for kind, row in OPERATIONS.items()
    }


def _local(abort: str, printing: str, document_member: str) -> Table:
    return {
        **_starts("/terminal/v1"),
        "abort": OperationRow("GET", f"/terminal/v1/{abort}"),
        "search": OperationRow("POST", "/terminal/v1/transaction_search_online"),
        "print": OperationRow("POST", f"/terminal/v1/{printing}", document_member=document_member),
        "print-job": OperationRow("GET", "/terminal/v1/print_job?print_job_id={print_job_id}"),
    }


def _cloud(print_job: str, document_member: str) -> Table:
    prefix = f"/terminal/v1/{{{TERMINAL_SERIAL}}}"
    return {
        **_starts(prefix),
        "abort": OperationRow("POST", f"{prefix}/sync/abort"),
        "search": OperationRow("POST", f"{prefix}/sync/transaction_search_online"),
        "print": OperationRow("POST", f"{prefix}/sync/print/job", document_member=document_member),
        "print-job": OperationRow("GET", f"{prefix}/{print_job}?print_job_id={{print_job_id}}"),
    }


Profiles = Mapping[Edition, Mapping[AccessMode, Table]]

#: Edition -> access mode -> table. The editions differ only in the arguments of the calls below.
EDITIONS: Final[Profiles] = MappingProxyType(
    {
        "classic": {"local": _local("abort", "print", "document"), "cloud": _cloud("print_job", "document")},
        "2026": {"local": _local("sync/abort", "print/job", ""), "cloud": _cloud("sync/print_job", "")},
    }
)

#: Pattern of a path in a request line: visible ASCII, no fragment, and braces only around placeholders.
_PATH = re.compile(r"/(?!/)(?:[!\"$-z|~]|\{[^{}]*\})*")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


def resolve_path(
    row: OperationRow, *, terminal_serial: str = "", print_job_id: str = "", client_transaction_id: str = ""
) -> str:
    """Return the row's path with its placeholders filled, percent-encoded, so that no value adds a path segment.

    Raise ValueError for an empty required value.
    """
    values = {
        TERMINAL_SERIAL: terminal_serial,
        PRINT_JOB_ID: print_job_id,
        CLIENT_TRANSACTION_ID: client_transaction_id,
    }

    def value(match: re.Match[str]) -> str:
        filled = values[match[1]]
        # quote() does not encode "." and "..", which would lead to the parent path.
        if filled.strip(".") == "":
            raise ValueError(f"the path {row.path} needs a {match[1]}, but it is {filled!r}")
        return quote(filled, safe="")

    return _PLACEHOLDER.sub(value, row.path)


def path_fault(operation: str, access_mode: AccessMode, path: str) -> str | None:
    """Return the fault of a configured path as text, or None."""
    if _PATH.fullmatch(path) is None:
        return "is not an absolute path in visible ASCII characters without '#'"
    known = {TERMINAL_SERIAL} | ({OWN_PLACEHOLDERS[operation]} if operation in OWN_PLACEHOLDERS else set())
    needed = ({TERMINAL_SERIAL} if access_mode == "cloud" else set()) | (known & {PRINT_JOB_ID})
    found = set(_PLACEHOLDER.findall(path))
    if unknown := sorted(found - known):
        return f"has the unknown placeholder {{{unknown[0]}}}; known here: {_braced(known)}"
    if missing := sorted(needed - found):
        return f"lacks the placeholder {_braced(missing)}: without it the terminal cannot know which payment is meant"
    return None


def pointer_fault(pointer: str) -> str | None:
    """Return the fault of a configured JSON Pointer (RFC 6901) as text, or None."""
    if _POINTER.fullmatch(pointer) is None:
        return "is not a JSON Pointer: empty, or /name/name with ~0 for ~ and ~1 for /"
    return None


def replace_row(row: OperationRow, *, confirmed: bool | None = None, **given: Any) -> OperationRow:
    """Return a row with the configured (checked) values. None keeps a value.

    A confirmation covers one method and one path. If the configuration changes the method or the path, the row is an
    assumption again, until the configuration confirms it.
    """
    new = msgspec.structs.replace(row, **{name: value for name, value in given.items() if value is not None})
    if confirmed is None:
        confirmed = row.confirmed and (new.method, new.path) == (row.method, row.path)
    return msgspec.structs.replace(new, confirmed=confirmed)


def _braced(names: set[str] | list[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
