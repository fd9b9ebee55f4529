"""Print the sizes of posd and of its tests: `python -m tests.house`."""

from tests.house import source
from tests.rig.figures import show

if __name__ == "__main__":
    for top in ("posd", "tests"):
        modules = source.modules(top)
        folders = source.folders(modules)
        rows = sorted(folders.items(), key=lambda row: -row[1].lines)
        rows.append(("together", source.Size(*map(sum, zip(*folders.values(), strict=True)))))
        show((top, *source.Size._fields), ((name or ".", *size) for name, size in rows))
    tests = (len(module.code) for module in modules.values() if module.path.name.startswith("test_"))
    print(f"harness: {rows[-1][1].lines - sum(tests):,} lines in files of the tests that are not named test_*")
