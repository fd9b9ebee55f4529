"""The terminal profile: which HTTP operation carries what, for terminals on the local network and in the cloud.

There is a table for each edition of the vendor's documents. The terminal API shows the charge alone. Every other row is
an assumption from public vendor material: it is used, but what it answers proves nothing until the configuration says
`confirmed = true` for it, or it was seen working with the terminal (`terminals.commission`). The configuration can
replace each row; `replace_row` holds the rules for that.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import quote

import msgspec

AccessMode = Literal["local", "cloud"]
#: Which of the vendor's documents a terminal follows: the older ones, or those of 2026.
Edition = Literal["classic", "2026"]
Method = Literal["GET", "POST"]

ACCESS_MODES: Final[tuple[AccessMode, ...]] = ("local", "cloud")
EDITION_NAMES: Final[tuple[Edition, ...]] = ("classic", "2026")
METHODS: Final[tuple[Method, ...]] = ("GET", "POST")
TERMINAL_SERIAL: Final = "terminal_serial"
PRINT_JOB_ID: Final = "print_job_id"
CLIENT_TRANSACTION_ID: Final = "client_transaction_id"

#: Placeholders that belong to one operation alone.
OWN_PLACEHOLDERS: Final[Mapping[str, str]] = MappingProxyType(
    {"print-job": PRINT_JOB_ID, "search": CLIENT_TRANSACTION_ID}
)


class Row(msgspec.Struct, frozen=True):
    """One operation. `path` may hold `{placeholders}`. Of the search alone: `pointer` is the JSON Pointer to the
    transactions in the reply, "" for the whole reply; `paged` is whether they come as a page of a list. Of what starts
    a payment: `abortable` is whether the POS can abort it; `errors_in_2xx` is whether an error in an answer of 2xx says
    that it was not started. Of printing: `document_member` holds the document, "" where its members lie beside posd's.
    """

    method: Method
    path: str
    confirmed: bool = False
    pointer: str = ""
    paged: bool = False
    abortable: bool = True
    errors_in_2xx: bool = False
    document_member: str = ""

    @property
    def assumption(self) -> bool:
        """Whether no person has confirmed this row: its answers are no proof."""
        return not self.confirmed


Table = Mapping[str, Row]


class Profile(msgspec.Struct, frozen=True):
    """The tables of one edition, by operation, for both access modes."""

    local: Table
    cloud: Table

    def table(self, access_mode: AccessMode) -> Table:
        """The table of one access mode."""
        return self.local if access_mode == "local" else self.cloud


#: What starts a payment: operation -> the last word of its path. The terminal API confirms the charge alone.
STARTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "charge": "charge",
        "pre-auth": "authorization",
        "capture": "capture",
        "re-auth": "re_authorization",
        "post-tip": "pos_tip",
        "void": "void",
        "refund": "refund",
    }
)
_CONFIRMED: Final = frozenset({"charge"})


def _starts(prefix: str) -> Table:
    return {kind: Row("POST", f"{prefix}/async/{word}", confirmed=kind in _CONFIRMED) for kind, word in STARTS.items()}


def _local(abort: str, printing: str, document_member: str) -> Table:
    return MappingProxyType(
        {
            **_starts("/terminal/v1"),
            "abort": Row("GET", f"/terminal/v1/{abort}"),
            "search": Row("POST", "/terminal/v1/transaction_search_online"),
            "print": Row("POST", f"/terminal/v1/{printing}", document_member=document_member),
            "print-job": Row("GET", "/terminal/v1/print_job?print_job_id={print_job_id}"),
        }
    )


def _cloud(print_job: str, document_member: str) -> Table:
    prefix = f"/terminal/v1/{{{TERMINAL_SERIAL}}}"
    return MappingProxyType(
        {
            **_starts(prefix),
            "abort": Row("POST", f"{prefix}/sync/abort"),
            "search": Row("POST", f"{prefix}/sync/transaction_search_online"),
            "print": Row("POST", f"{prefix}/sync/print/job", document_member=document_member),
            "print-job": Row("GET", f"{prefix}/{print_job}?print_job_id={{print_job_id}}"),
        }
    )


Profiles = Mapping[Edition, Profile]

#: The tables of each edition. What they do not share is what the two say differently.
EDITIONS: Final[Profiles] = MappingProxyType(
    {
        "classic": Profile(_local("abort", "print", "document"), _cloud("print_job", "document")),
        "2026": Profile(_local("sync/abort", "print/job", ""), _cloud("sync/print_job", "")),
    }
)

#: A path as it goes on the request line: visible ASCII, no fragment; braces only around placeholders.
_PATH = re.compile(r"/(?!/)(?:[!\"$-z|~]|\{[^{}]*\})*")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


def resolve_path(
    row: Row, *, terminal_serial: str = "", print_job_id: str = "", client_transaction_id: str = ""
) -> str:
    """Fill the placeholders of the row's path; values are percent-encoded, so that none can add a path segment.

    Raises ValueError where the path needs a value that is empty here.
    """
    values = {
        TERMINAL_SERIAL: terminal_serial,
        PRINT_JOB_ID: print_job_id,
        CLIENT_TRANSACTION_ID: client_transaction_id,
    }

    def value(match: re.Match[str]) -> str:
        filled = values[match[1]]
        # "." and ".." are not encoded by quote() and would walk up the path.
        if filled.strip(".") == "":
            raise ValueError(f"the path {row.path} needs a {match[1]}, but it is {filled!r}")
        return quote(filled, safe="")

    return _PLACEHOLDER.sub(value, row.path)


def path_fault(operation: str, access_mode: AccessMode, path: str) -> str | None:
    """Say in words what is wrong with a configured path, None where it can be used."""
    if _PATH.fullmatch(path) is None:
        return "is not an absolute path in visible ASCII characters without '#'"
    known = {TERMINAL_SERIAL} | ({OWN_PLACEHOLDERS[operation]} if operation in OWN_PLACEHOLDERS else set())
    needed = ({TERMINAL_SERIAL} if access_mode == "cloud" else set()) | (known & {PRINT_JOB_ID})
    found = set(_PLACEHOLDER.findall(path))
    if unknown := sorted(found - known):
        return f"has the unknown placeholder {{{unknown[0]}}}; known here: {_braced(known)}"
    if missing := sorted(needed - found):
        return f"lacks the placeholder {_braced(missing)}: without it the terminal cannot tell what is meant"
    return None


def pointer_fault(pointer: str) -> str | None:
    """Say in words what is wrong with a configured JSON Pointer (RFC 6901), None where it can be used."""
    if _POINTER.fullmatch(pointer) is None:
        return "is not a JSON Pointer: empty, or /name/name with ~0 for ~ and ~1 for /"
    return None


def replace_row(row: Row, *, confirmed: bool | None = None, **given: Any) -> Row:
    """Lay configured values (already checked) over a row; None leaves what stands there.

    What the terminal API or a person confirmed was this method and this path: a row that is changed in either is an
    assumption again, unless the configuration confirms it anew.
    """
    new = msgspec.structs.replace(row, **{name: value for name, value in given.items() if value is not None})
    if confirmed is None:
        confirmed = row.confirmed and (new.method, new.path) == (row.method, row.path)
    return msgspec.structs.replace(new, confirmed=confirmed)


def _braced(names: set[str] | list[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
