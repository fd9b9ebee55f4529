"""The terminal profile: which HTTP operation carries what, for terminals on the local network and in the cloud.

The terminal API shows the charge alone. Every other row is an assumption from public vendor material: it is used, but
what it answers proves nothing until the configuration says `confirmed = true` for it, or it was seen working with the
terminal (`terminals.commission`). The configuration can replace each row; `replace_row` holds the rules for that.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal
from urllib.parse import quote

AccessMode = Literal["local", "cloud"]
Method = Literal["GET", "POST"]

ACCESS_MODES: Final[tuple[AccessMode, ...]] = ("local", "cloud")
METHODS: Final[tuple[Method, ...]] = ("GET", "POST")
TERMINAL_SERIAL: Final = "terminal_serial"
PRINT_JOB_ID: Final = "print_job_id"
CLIENT_TRANSACTION_ID: Final = "client_transaction_id"

#: Placeholders that belong to one operation alone.
OWN_PLACEHOLDERS: Final[Mapping[str, str]] = MappingProxyType(
    {"print-job": PRINT_JOB_ID, "search": CLIENT_TRANSACTION_ID}
)


@dataclass(frozen=True, slots=True)
class Row:
    """One operation. `path` may hold `{placeholders}`; `pointer` (search alone) is the JSON Pointer to the
    transactions in the reply, "" for the whole reply; `abortable` (what starts something) is whether the POS can
    abort it."""

    method: Method
    path: str
    confirmed: bool = False
    pointer: str = ""
    abortable: bool = True

    @property
    def assumption(self) -> bool:
        """Whether no person has confirmed this row: its answers are no proof."""
        return not self.confirmed


Table = Mapping[str, Row]


@dataclass(frozen=True, slots=True)
class Profile:
    """The tables in force, by operation, for both access modes."""

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


DEFAULT: Final = Profile(
    local=MappingProxyType(
        {
            **_starts("/terminal/v1"),
            "abort": Row("GET", "/terminal/v1/abort"),
            "search": Row("POST", "/terminal/v1/transaction_search_online"),
            "print": Row("POST", "/terminal/v1/print"),
            "print-job": Row("GET", "/terminal/v1/print_job?print_job_id={print_job_id}"),
        }
    ),
    cloud=MappingProxyType(
        {
            **_starts("/terminal/v1/{terminal_serial}"),
            "abort": Row("POST", "/terminal/v1/{terminal_serial}/sync/abort"),
            "search": Row("POST", "/terminal/v1/{terminal_serial}/sync/transaction_search_online"),
            "print": Row("POST", "/terminal/v1/{terminal_serial}/sync/print/job"),
            "print-job": Row("GET", "/terminal/v1/{terminal_serial}/print_job?print_job_id={print_job_id}"),
        }
    ),
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
    new = replace(row, **{name: value for name, value in given.items() if value is not None})
    if confirmed is None:
        confirmed = row.confirmed and (new.method, new.path, new.pointer) == (row.method, row.path, row.pointer)
    return replace(new, confirmed=confirmed)


def _braced(names: set[str] | list[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in sorted(names))
