"""The pages of docs/guides/operations.md about possible loss of payment records. Each check makes the situation of a
page on the machine. A user of the group posd-admin with sudo types the page's commands unchanged on a terminal. The
commands must print the output that the page promises.
"""

import uuid
from collections.abc import Callable
from pathlib import Path

from tests.system import shop
from tests.system.guide_pages import Page, opened, text
from tests.system.machine import Machine, until
from tests.system.report import Report

BACKUP = "/var/lib/posd/backups/by-hand.db"


def run(report: Report, scratch: Path) -> None:
    """Run the part. Each page is a check."""
    with opened(report, scratch) as machine:
        for look in LOOKS:
            with report.check(str(look.__doc__)):
                look(Page(str(look.__doc__), machine))
                shop.paid(machine)


def says(page: Page, words: str, shown: str) -> None:
    """Check that the page has these words and that the commands have printed them."""
    assert words in " ".join(text(page.heading).split()), f"the page {page.heading!r} does not contain {words!r}"
    assert words in " ".join(shown.split()), f"the commands did not print {words!r}\n{shown}"


def refused(page: Page) -> None:
    """Check that a till cannot pay until a person has decided. Check that the display gives the reason to the
    cashier.
    """
    says(page, "restore_unseen", page.machine.fails("posd", "charge", "12.50", user="till", codes=(1, 3)))


def up(machine: Machine) -> None:
    """Start posd, and wait until it is ready."""
    machine.run("systemctl", "start", "posd")
    until(lambda: not machine.run("posd", "list", "--open", check=False).returncode, "posd answers", 60)


def log(machine: Machine) -> str:
    return machine.out("journalctl", "-u", "posd", "-o", "cat", "-n", "30")


def damaged(page: Page) -> None:
    """The database is damaged"""
    machine = page.machine
    machine.run("systemctl", "start", "posd-backup")
    shop.paid(machine)
    known = {one["client_transaction_id"] for one in shop.payments(machine)}
    destroy(machine)
    machine.run("systemctl", "start", "posd", check=False)
    until(lambda: "is damaged" in log(machine), "the log says so", 60)
    says(page, "nothing was changed", log(machine))
    page.type("sudo systemctl stop posd")
    page.type("sudo -u posd posd verify", 2)
    newest = page.type("sudo ls -t /var/lib/posd/backups").split()[0]
    page.type("sudo -u posd posd restore /var/lib/posd/backups/BACKUP", answer="y\n", BACKUP=newest)
    page.type("sudo systemctl start posd")
    up(machine)
    page.type("posd restore --seen", 0, 1, answer="compared with the bank\n")
    left = known - {one["client_transaction_id"] for one in shop.payments(machine)}
    assert not left, f"posd does not know {len(left)} of {len(known)} payments"
    shop.paid(machine)
    destroy(machine)
    page.type("sudo -u posd posd restore --without-backup", answer="y\n")
    up(machine)
    machine.run("posd", "restore", "--seen", "--note", "compared", check=False)
    page.end(untyped="posd restore")


def destroy(machine: Machine) -> None:
    """Overwrite the middle of the database while posd is stopped."""
    machine.run("systemctl", "stop", "posd")
    file = machine.root / "var/lib/posd/posd.db"
    data = bytearray(file.read_bytes())
    for at in range(4096 * 2, len(data), 4096 * 2):
        data[at : at + 512] = b"\xff" * 512
    file.write_bytes(data)


def was_restored(page: Page) -> None:
    """The database was restored"""
    machine = page.machine
    machine.run("posd", "backup", BACKUP, user="posd")
    shop.paid(machine)
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", "rm /var/lib/posd/posd.db /var/lib/posd/posd.db-*; true")
    machine.run("posd", "restore", "--yes", BACKUP, user="posd")
    up(machine)
    says(page, "! restore", page.type("posd status", 1))
    says(page, "store.restored", log(machine))
    refused(page)
    page.type("posd list --attention", 0, 1)
    slip = 'posd resolve ID approved --amount 11.20 --terminal SN-0001 --operator NAME --note "slip 000123"'
    lost = str(uuid.uuid4())
    page.type(slip, answer="y\n", ID=lost, NAME="Ana")
    assert shop.result(shop.charge(machine, "11.20", "--terminal", "SN-0001", "--id", lost)) == "approved"
    page.type('posd restore --seen --operator NAME --note "compared with the bank until 18:40"', NAME="Ana")
    page.end(untyped="posd restore --seen")


def gone_back(page: Page) -> None:
    """The database has gone back"""
    machine = page.machine
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", "cp -a /var/lib/posd/posd.db /var/lib/posd/older.db")
    up(machine)
    shop.paid(machine)
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", "mv /var/lib/posd/older.db /var/lib/posd/posd.db; rm -f /var/lib/posd/posd.db-*")
    up(machine)
    says(page, "database has gone back in time", page.type("posd status", 1))
    says(page, "store.gone_back", log(machine))
    refused(page)
    page.type("posd restore --seen --operator NAME", answer="compared with the bank\n", NAME="Ana")
    page.end(untyped="posd restore")


LOOKS: tuple[Callable[[Page], None], ...] = (damaged, was_restored, gone_back)
