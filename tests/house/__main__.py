"""Measure posd's structure: files, lines, imports, import circles, the calls of one charge, and what users see.

python -m tests.house
python -m tests.house trace
python -m tests.house surface FILE
"""

import sys
from collections import Counter
from pathlib import Path

from tests.house import source, surface, trace

#: The file from which the event loop runs. A resumed function counts as called from this file.
LOOP = "daemon/main.py"


def figures() -> None:
    """Print a row for each folder, the sum, and each circle."""
    modules = source.modules()
    folders = source.folders(modules)
    imports = Counter[str]()
    for module in modules.values():
        imports[module.folder] += len(module.imports)
    print(f"{'folder':12} {'files':>6} {'lines':>7} {'classes':>8} {'imports':>8}")
    for folder, size in sorted(folders.items(), key=lambda item: -item[1].lines):
        print(f"{folder or '.':12} {size.files:6} {size.lines:7,} {size.classes:8} {imports[folder]:8,}")
    files, lines, classes = (sum(column) for column in zip(*folders.values(), strict=True))
    print(f"{'together':12} {files:6} {lines:7,} {classes:8} {imports.total():8,}")
    print("\ncircles of imports, those inside functions too:")
    for circle in source.circles({name: source.imported(module, modules) for name, module in modules.items()}):
        print("  " + " ".join(name.removeprefix("posd.") for name in circle))


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
        case []:
            figures()
        case ["trace"]:
            way()
        case ["surface", file]:
            surface.record(Path(file))
        case _:
            sys.exit(__doc__)
