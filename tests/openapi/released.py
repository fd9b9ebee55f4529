"""Released descriptions, which existing tills use."""

import json
from pathlib import Path
from typing import Any

from posd.api.openapi import document

V1 = Path(__file__).with_name("released") / "v1.json"


def today() -> dict[str, Any]:
    """Return the present description."""
    return json.loads(document())


def read() -> dict[str, Any]:
    """Return the last released description."""
    return json.loads(V1.read_text())
