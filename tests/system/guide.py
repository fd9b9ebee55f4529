"""The pages of docs/guides/operations.md about moving the payment records, with their commands typed on two
machines.
"""

import shutil
from pathlib import Path

from tests.system import packages, shop
from tests.system.guide_pages import Shops, again, blocks, states
from tests.system.report import Check, Report

PART = "guide"


def run(report: Report, scratch: Path) -> None:
    """Run the part; each page is a check."""
    shops = Shops(scratch / f"guide-{report.suite}", report.suite)
    try:
        with report.check(PART, "two machines are laid out, and one charges") as check:
            shops.open(packages.given(scratch))
            check.note(shops.package)
        if report.checks[-1].result != "passed":
            return
        for page in (cloned, replaced, replaced_from_backup):
            with report.check(PART, str(page.__doc__).rstrip(".")) as check:
                page(shops, check)
    finally:
        shops.close()


def cloned(shops: Shops, check: Check) -> None:
    """Clone a machine: each copy gets keys and payments of its own."""
    original = shops.here
    authority, config = original.out("posd", "tls", "ca"), original.out("cat", shop.CONFIG)
    shutil.copytree(original.root / "var/lib/posd", shops.scratch / "kept", symlinks=True)
    image, copy = blocks("Clone a machine")
    shops.type(original, check, image, r"/^\[\[terminals\]\]/,$d")
    again(original)
    assert states(original) == ("active", "active")
    assert original.out("posd", "tls", "ca") != authority
    assert shop.payments(original) == []
    shops.type(
        original, check, copy, f'$a [[terminals]]\\nserial = "SN-0003"\\nbase_url = "http://{shop.ADDRESS}:6868"'
    )
    shop.terminal(original, "SN-0003", shop.ADDRESS)
    assert shop.result(shop.charge(original)) == "approved"
    assert len(shop.payments(original)) == 1
    original.write(shop.CONFIG, config + "\n")


def replaced(shops: Shops, check: Check) -> None:
    """Replace a machine."""
    old, new, _ = blocks("The machine is replaced")
    before = shop.payments(shops.here)
    authority = shops.here.out("posd", "tls", "ca")
    shops.type(shops.here, check, old)
    with shops.second() as machine:
        machine.put(shops.here.root / "root/posd-machine.tgz", "/root/")
        shops.type(machine, check, new)
        assert shop.payments(machine) == before
        assert machine.out("posd", "tls", "ca") == authority
        assert states(machine) == ("active", "active")
        shop.terminal(machine, "SN-0001", shop.ADDRESS)
        machine.run("useradd", "--groups", "posd-till", "till")
        assert shop.result(shop.charge(machine)) == "approved"
    again(shops.here)
    assert states(shops.here) == ("inactive", "inactive"), "the old machine must not start it again"
    shops.here.run("systemctl", "enable", "--now", "posd")


def replaced_from_backup(shops: Shops, check: Check) -> None:
    """Replace a dead machine from its last backup."""
    before = shop.payments(shops.here)
    shops.here.run("runuser", "-u", "posd", "--", "posd", "backup", "/var/lib/posd/backups/last.db")
    _, _, page = blocks("The machine is replaced")
    with shops.second() as machine:
        machine.run("apt-get", "install", "-y", "--no-install-recommends", f"/root/{shops.package}", seconds=600)
        machine.put(shops.here.root / "var/lib/posd/backups/last.db", "/var/lib/posd/backups/")
        machine.run("chown", "posd:posd", "/var/lib/posd/backups/last.db")
        shops.type(machine, check, page)
        assert shop.payments(machine) == before
