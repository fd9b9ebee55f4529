"""The Debian packages under test: the package of this checkout, and later versions made from it."""

import os
import re
import shutil
from pathlib import Path

from tests.system.machine import host

#: Variable with the path of a package to test instead of the package of this checkout.
GIVEN = "POSD_SYSTEM_PACKAGE"
CHECKOUT = Path(__file__).parents[2]


def given(scratch: Path) -> Path:
    """Return the package under test. Build the package once for all parts."""
    target = scratch / "packages"
    if (there := os.environ.get(GIVEN)) and not target.exists():
        target.mkdir()
        for file in Path(there).parent.glob("posd*.deb"):
            shutil.copy(file, target)
    found = sorted(target.glob("posd_[!9]*.deb"))
    return found[0] if found else build(scratch)


def build(scratch: Path) -> Path:
    """Build the package of this checkout. Return its files."""
    output = scratch / "packages"
    host(str(CHECKOUT / "packaging" / "build-deb"), "--output", str(output), seconds=900)
    return next(output.glob("posd_*.deb"))


def source(scratch: Path) -> list[Path]:
    """Write the source package of this checkout's last commit once. Return its files."""
    output = scratch / "source"
    if not output.exists():
        host(str(CHECKOUT / "packaging" / "build-deb"), "--source", "--output", str(output), seconds=900)
    return sorted(output.iterdir())


def later(scratch: Path, package: Path, name: str, *, migrates: bool = False) -> Path:
    """Make the package of a later version from a built package. Return the package. The function changes the version in
    Python and in the control files. With `migrates` it also changes the schema. The function does not compile the
    package again, so the function takes only seconds.
    """
    tree, now = scratch / f"tree-{name}", package.name.split("_")[1]
    host("dpkg-deb", "-R", str(package), str(tree))
    site = tree / "opt/posd/lib/site-packages"
    numbered = site / "posd" / "__init__.py"
    numbered.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{name}"', numbered.read_text()))
    sums = tree / "DEBIAN" / "md5sums"
    kept = [
        line for line in sums.read_text().splitlines(keepends=True) if "/site-packages/posd/__init__.py" not in line
    ]
    sums.write_text("".join(kept))
    newest = schema = max((site / "posd/storage/migrations").glob("*.sql"))
    if migrates:
        schema = newest.with_name(f"{int(newest.name[:4]) + 1:04}_later.sql")
        schema.write_text("CREATE TABLE later (it INTEGER) STRICT;")
    for file in (tree / "DEBIAN").iterdir():
        text = file.read_text().replace(now, f"{name}-1")
        file.write_text(text.replace(newest.name, schema.name) if file.name == "preinst" else text)
    target = package.parent / package.name.replace(now, f"{name}-1")
    host("dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(tree), str(target))
    shutil.rmtree(tree)
    return target
