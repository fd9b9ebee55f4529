"""The Debian packages that are tested: of this checkout, of the version before, and of later ones, made from a copy."""

import os
import re
import shutil
import subprocess
from pathlib import Path

from tests.system.machine import host
from tests.system.report import Skipped

#: Names a package that is there already: it is tested in place of this checkout's.
GIVEN = "POSD_SYSTEM_PACKAGE"
#: The same for the version before.
FORMER = "POSD_SYSTEM_FORMER"
#: The last commit whose package ran on Debian 12 alone and had the configuration as a conffile.
FORMER_COMMIT = "d445057"
CHECKOUT = Path(__file__).parents[2]


def given(scratch: Path) -> Path:
    """Return the package to test: built once, however many parts ask for it."""
    target = scratch / "packages"
    if (there := os.environ.get(GIVEN)) and not target.exists():
        target.mkdir()
        for file in Path(there).parent.glob("posd*.deb"):
            shutil.copy(file, target)
    found = sorted(target.glob("posd_[!9]*.deb"))
    return found[0] if found else build(scratch)


def build(scratch: Path) -> Path:
    """Build the package of this checkout; return it."""
    output = scratch / "packages"
    host(str(CHECKOUT / "packaging" / "build-deb"), "--output", str(output), seconds=900)
    return next(output.glob("posd_*.deb"))


def source(scratch: Path) -> list[Path]:
    """Write the source package of this checkout's last commit, once; return its files."""
    output = scratch / "source"
    if not output.exists():
        host(str(CHECKOUT / "packaging" / "build-deb"), "--source", "--output", str(output), seconds=900)
    return sorted(output.iterdir())


def former(scratch: Path) -> Path:
    """Return the package of the version before, built once by its own build-deb (with Python 3.11). Raise Skipped."""
    output = scratch / "former"
    if there := os.environ.get(FORMER):
        return Path(there)
    if not output.exists():
        source = scratch / "former-source"
        source.mkdir()
        git = ("git", "-C", str(CHECKOUT))
        try:
            time = host(*git, "log", "-1", "--format=%ct", FORMER_COMMIT).stdout.strip()
        except AssertionError as error:
            raise Skipped(f"this checkout has no commit {FORMER_COMMIT}; {FORMER} names a package") from error
        host("sh", "-c", f"git -C {CHECKOUT} archive {FORMER_COMMIT} | tar -x -C {source}")
        built = ("--output", str(output), "--revision", "0")  # before the 1 of this checkout's
        host("env", f"SOURCE_DATE_EPOCH={time}", str(source / "packaging" / "build-deb"), *built, seconds=900)
    return next(output.glob("posd_*.deb"))


def later(scratch: Path, package: Path, name: str, *, migrates: bool = False) -> Path:
    """Make the package of a later version out of a built one, as a release a day later would be; return it.

    Only what a version changes is changed, so that this takes seconds: its number, in Python and in the control files;
    and its schema where it `migrates`.
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


def same(one: Path, other: Path) -> bool:
    """Whether two packages are the same to the byte."""
    return subprocess.run(["cmp", "-s", str(one), str(other)], check=False).returncode == 0
