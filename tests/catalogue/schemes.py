"""Authentication of the catalogue's terminals, from POSD_CATALOGUE_AUTH. The default is none.

`POSD_CATALOGUE_AUTH=hash-encrypt pytest --whole tests/catalogue` plays every scenario with this scheme. The other
scheme is `hmac`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

AUTH = os.environ.get("POSD_CATALOGUE_AUTH", "none")
BUSINESS_CODE = "5f1e0c8a7b3d49e2a6c4d80f9b2e7135"
_SETTINGS: Mapping[str, dict[str, Any]] = {
    "none": {},
    "hmac": {"auth": "hmac", "business_code": BUSINESS_CODE},
    "hash-encrypt": {
        "auth": "hash-encrypt",
        "business_code": BUSINESS_CODE,
        "edition": "2026",
        "encrypt_replies": True,
    },
}
#: Options of the simulated terminal.
SETTINGS = _SETTINGS[AUTH]


def entry(directory: Path) -> str:
    """Return posd's configuration of a terminal with this authentication.

    The code of the terminal is in a file of the directory.
    """
    if AUTH == "none":
        return ""
    file = directory / "business-code"
    file.touch(mode=0o600)
    file.write_text(BUSINESS_CODE)
    edition = SETTINGS.get("edition", "classic")
    return f'edition = "{edition}"\nauth = "{AUTH}"\nbusiness_code = {{ file = "{file}" }}\n'
