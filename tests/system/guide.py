"""docs/guides/operations.md: the pages of planned work, their commands typed on one machine and on a second one."""

import re
import shutil
from pathlib import Path

from tests.system import packages, shop
from tests.system.guide_pages import Shops, again, blocks, refused, states
from tests.system.machine import need, until
from tests.system.report import Check, Report

PART = "guide"
#: Where this machine moves to, with its terminal.
MOVED = "10.98.0.7"


def run(report: Report, scratch: Path) -> None:
    """Run the part: a page is a check."""
    shops = Shops(scratch / f"guide-{report.suite}", report.suite)
    try:
        with report.check(PART, "two machines are laid out, and one charges") as check:
            need("mmdebstrap", "mmdebstrap")
            need("systemd-nspawn", "systemd-container")
            shops.open(packages.given(scratch))
            check.note(shops.package)
        if report.checks[-1].result != "passed":
            return
        for page in (stopped, disabled, terminal_changed, cloned, replaced, replaced_from_backup, moved):
            with report.check(PART, str(page.__doc__).rstrip(".")) as check:
                page(shops, check)
    finally:
        shops.close()


def stopped(shops: Shops, check: Check) -> None:
    """Stop posd, and start it again."""
    stop, start = blocks("Stop posd")
    shops.type(shops.here, check, stop)
    until(lambda: states(shops.here) == ("inactive", "inactive"), "it is stopped")
    refused(shops.here)
    shops.type(shops.here, check, start)
    assert shop.result(shop.charge(shops.here)) == "approved"


def disabled(shops: Shops, check: Check) -> None:
    """Disable posd for good."""
    disable, enable = blocks("Disable posd")
    shops.type(shops.here, check, disable)
    again(shops.here)
    assert states(shops.here) == ("inactive", "inactive")
    refused(shops.here)
    shop.terminal(shops.here, "SN-0001", shop.ADDRESS)
    shops.type(shops.here, check, enable)
    again(shops.here)
    shop.terminal(shops.here, "SN-0001", shop.ADDRESS)
    assert shop.result(shop.charge(shops.here)) == "approved"


def terminal_changed(shops: Shops, check: Check) -> None:
    """Change a terminal."""
    machine = shops.here
    shop.terminal(machine, "SN-0002", shop.ADDRESS)
    (page,) = blocks("Change a terminal")
    shops.type(machine, check, page, "s/SN-0001/SN-0002/")
    document = shop.charge(machine)
    assert (document["terminal"], shop.result(document)) == ("SN-0002", "approved")


def moved(shops: Shops, check: Check) -> None:
    """Move to a new address."""
    machine = shops.here
    authority = machine.out("posd", "tls", "ca")
    machine.run("ip", "addr", "add", f"{MOVED}/24", "dev", "shop0")
    machine.run("ip", "addr", "del", f"{shop.ADDRESS}/24", "dev", "shop0")
    shop.terminal(machine, "SN-0002", MOVED)
    (page,) = blocks("Move to a new address")
    shops.type(machine, check, page, f"s/{re.escape(shop.ADDRESS)}/{MOVED}/")
    until(lambda: MOVED in machine.out("posd", "tls", "status"), "the certificate names the new address", 60)
    assert machine.out("posd", "tls", "ca") == authority
    assert shop.result(shop.charge(machine)) == "approved"


def cloned(shops: Shops, check: Check) -> None:
    """Clone a machine: each copy has keys and payments of its own."""
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
        shop.terminal(machine, "SN-0002", shop.ADDRESS)
        machine.run("useradd", "--groups", "posd-till", "till")
        assert shop.result(shop.charge(machine)) == "approved"
    again(shops.here)
    assert states(shops.here) == ("inactive", "inactive"), "the old machine must not start it again"
    shops.here.run("systemctl", "enable", "--now", "posd")


def replaced_from_backup(shops: Shops, check: Check) -> None:
    """Replace a machine that is dead, from its last backup."""
    before = shop.payments(shops.here)
    shops.here.run("runuser", "-u", "posd", "--", "posd", "backup", "/var/lib/posd/backups/last.db")
    _, _, page = blocks("The machine is replaced")
    with shops.second() as machine:
        machine.run("apt-get", "install", "-y", "--no-install-recommends", f"/root/{shops.package}", seconds=600)
        machine.put(shops.here.root / "var/lib/posd/backups/last.db", "/var/lib/posd/backups/")
        machine.run("chown", "posd:posd", "/var/lib/posd/backups/last.db")
        shops.type(machine, check, page)
        assert shop.payments(machine) == before
