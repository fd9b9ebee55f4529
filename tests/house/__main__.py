"""Follow the calls of one charge, or record what users see.

python -m tests.house trace
python -m tests.house surface FILE
"""

import sys
from pathlib import Path

from tests.house import surface, trace

#: The file from which the event loop runs. A resumed function counts as called from this file.
LOOP = "daemon/main.py"


def way() -> None:
    """Print the calls of one charge."""
    found = trace.charge()
    folders = {file.split("/")[0] for file in found.calls if "/" in file}
    print(f"{len(found.calls)} files in {len(folders)} folders, {found.calls.total():,} calls,")
    print(f"{found.jumps.total():,} jumps between files, {found.folder_jumps:,} between folders")
    resumed = sum(count for (caller, _), count in found.jumps.items() if caller == LOOP)
    print(f"{resumed:,} of both are tasks that the event loop goes on with: it runs below {LOOP}\n")
    for file, count in found.calls.most_common():
        print(f"{count:5} {file}")


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["trace"]:
            way()
        case ["surface", file]:
            surface.record(Path(file))
        case _:
            sys.exit(__doc__)
