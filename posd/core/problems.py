"""Problems: the stable codes with which posd refuses a call (local API, Problems; RFC 9457)."""

from collections.abc import Mapping
from typing import Any

#: code -> (HTTP status, title). The codes are part of the contract and never change their meaning.
PROBLEMS: Mapping[str, tuple[int, str]] = {
    "malformed_json": (400, "The body is not JSON"),
    "invalid_request": (422, "The request is not as described"),
    "unknown_terminal": (422, "The terminal is not in the fleet"),
    "terminal_offline": (503, "The terminal cannot be reached"),
    "terminal_busy": (409, "The terminal is busy"),
    "id_reused": (409, "The id belongs to another request"),
    "sale_conflict": (409, "The sale has another payment"),
    "already_derived": (409, "The original has another such operation"),
    "unknown_original": (422, "Nothing can be derived from that original"),
    "not_found": (404, "Not found"),
    "pruned": (410, "Its record was removed"),
    "past_point_of_no_return": (409, "The acquirer was already asked"),
    "already_final": (409, "It has already ended"),
    "nothing_running": (409, "The terminal runs nothing"),
    "not_abortable": (409, "No abort may be sent for it"),
    "call_outstanding": (409, "A call to the terminal is under way"),
    "not_configured": (501, "Not available"),
    "queue_full": (503, "Too many print jobs are waiting"),
    "storage_unavailable": (503, "The database cannot be written"),
    "draining": (503, "posd is stopping"),
    "forbidden": (403, "Not allowed on this socket"),
    "method_not_allowed": (405, "Method not allowed"),
    "request_timeout": (408, "The request took too long"),
    "payload_too_large": (413, "The body is too large"),
    "unsupported_media_type": (415, "The body must be JSON"),
    "internal_error": (500, "A fault of posd"),
}


class Problem(Exception):
    """A call that is refused: a code of `PROBLEMS`, what to do in words, and the code's own fields."""

    def __init__(self, code: str, detail: str, **extra: Any) -> None:
        super().__init__(detail)
        self.code = code
        self.detail = detail
        self.extra = extra

    @property
    def status(self) -> int:
        """The HTTP status of the code."""
        return PROBLEMS[self.code][0]

    def document(self) -> dict[str, Any]:
        """Return the body of the problem response; no field of a code's own takes the place of a problem's."""
        status, title = PROBLEMS[self.code]
        own = {
            "type": f"urn:posd:problem:{self.code}",
            "title": title,
            "status": status,
            "detail": self.detail,
            "code": self.code,
        }
        return own | self.extra | own
