"""Release the present description of the API (`python -m tests.openapi`). A released description is a promise.

If the present description would break the last release, print the breaks and release nothing.
"""

import sys

from tests.openapi import released
from tests.openapi.compare import Comparison


def main() -> int:
    faults = Comparison(released.read(), released.today()).faults() if released.V1.exists() else []
    if faults:
        print("nothing is released: this breaks what was promised (docs/reference/api-versions.md)", *faults, sep="\n")
        return 1
    released.write()
    print(f"released: {released.V1}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
