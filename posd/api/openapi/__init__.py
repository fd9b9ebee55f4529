"""The description of the local API (OpenAPI 3.1), made from the table of its calls and the types of their documents.

Nothing of it depends on the configuration. Whoever asks for it first loads this package; the daemon's start does not.
"""

from functools import cache

from posd.api.openapi.description import describe
from posd.base.json_text import encode


@cache
def document() -> bytes:
    """Return the description as JSON."""
    return encode(describe())
