"""UUIDs of the till: accepted in any case, used in canonical lower case (local API)."""

import re

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.ASCII)


def canonical_uuid(text: str) -> str | None:
    """Return a UUID in canonical lower case, None where the text is none."""
    lowered = text.lower()
    return lowered if _UUID.fullmatch(lowered) else None
