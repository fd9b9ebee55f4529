"""Print the sizes of posd and of its tests, or follow the calls of one charge.

python -m tests.house
python -m tests.house trace
"""

import sys

from tests.house import source, trace
from tests.rig.figures import show

#: The file from which the event loop runs. A resumed function counts as called from this file.
LOOP = "daemon/main.py"


def sizes() -> None:
    """Print files, code lines and classes of each folder of posd and of the tests, the largest folder first."""
    for top in ("posd", "tests"):
        modules = source.modules(top)
        folders = source.folders(modules)
        rows = sorted(folders.items(), key=lambda row: -row[1].lines)
        rows.append(("together", source.Size(*map(sum, zip(*folders.values(), strict=True)))))
        show((top, *source.Size._fields), ((name or ".", *size) for name, size in rows))
    tests = (len(module.code) for module in modules.values() if module.path.name.startswith("test_"))
    print(f"harness: {rows[-1][1].lines - sum(tests):,} lines in files of the tests that are not named test_*")


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
            sizes()
        case ["trace"]:
            way()
        case _:
            sys.exit(__doc__)
