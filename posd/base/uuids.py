"""UUIDs of the till: accepted in any case, used in canonical lower case (local API)."""

import re
from typing import Annotated

from msgspec import Meta

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def canonical_uuid(text: str) -> str | None:
    """Return a UUID in canonical lower case, None where the text is none."""
    lowered = text.lower()
    return lowered if _UUID.fullmatch(lowered) else None


ID_RULE = "must be 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-', and not dots alone"


#: The same as a pattern.
ID_PATTERN = r"(?!\.+$)[A-Za-z0-9._-]{1,64}"


_ID = re.compile(ID_PATTERN, re.ASCII)


PrintJobId = Annotated[str, Meta(pattern=f"^{ID_PATTERN}$")]


def is_print_job_id(text: str) -> bool:
    """Tell whether a text can be the id of a print job: it stands in paths, where dots alone would walk up."""
    return _ID.fullmatch(text) is not None
