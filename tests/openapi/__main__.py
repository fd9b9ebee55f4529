"""Release the present description of the API (`python -m tests.openapi`). A released description is a promise.

If the present description would break the last release, print the breaks and release nothing.
"""

import json
import sys

from tests.openapi import released
from tests.openapi.compare import Comparison

if faults := Comparison(released.read(), released.today()).faults():
    sys.exit(
        "\n".join(["nothing is released: this breaks what was promised (docs/reference/api-versions.md)", *faults])
    )
released.V1.write_text(json.dumps(released.today(), indent=1, ensure_ascii=False) + "\n")
print(f"released: {released.V1}")
