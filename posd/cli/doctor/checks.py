"""The table of checks, and how one is made: within its time, also where it raises."""

import threading
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from posd.cli.doctor import access, certificate, configuration, daemon, database, files, host, terminals
from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings
from posd.cli.doctor.users import root_again
from posd.config.layers import where


class DoctorCheck(NamedTuple):
    """One check: its title for people, how long it may take (seconds), and whether it needs the configuration.

    `refuses`: it finds what posd would refuse, so that `posd config check` makes it too.
    """

    title: str
    run: Callable[[DoctorContext], Findings]
    seconds: float
    needs_configuration: bool = True
    refuses: bool = False


#: In this order: later checks use what earlier ones have found out (the daemon's word, addresses, clocks).
CHECKS: Mapping[str, DoctorCheck] = MappingProxyType(
    {
        "configuration": DoctorCheck("Configuration", configuration.check, 30, needs_configuration=False, refuses=True),
        "daemon": DoctorCheck("Daemon", daemon.check, 30, needs_configuration=False),
        "files": DoctorCheck("Files and keys", files.check, 30, refuses=True),
        "access": DoctorCheck("Sockets and groups", access.check, 30, refuses=True),
        "database": DoctorCheck("Database", database.check, 30, refuses=True),
        "disk": DoctorCheck("Disk", host.check_disk, 10),
        "port": DoctorCheck("Ports", daemon.check_ports, 30, refuses=True),
        "firewall": DoctorCheck("Firewall", host.check_firewall, 20),
        "mdns": DoctorCheck("mDNS", terminals.listen, 15),
        "certificate": DoctorCheck("Certificate", certificate.check, 20, refuses=True),
        "terminal": DoctorCheck("Terminals", terminals.check, 120),
        "callback": DoctorCheck("Callback addresses", certificate.check_callbacks, 60),
        "clock": DoctorCheck("Clock", host.check_clock, 10, needs_configuration=False),
    }
)


def refusals(shop: DoctorContext) -> tuple[list[CheckFinding], list[CheckFinding]]:
    """Return what posd would refuse at its start with this configuration, and what this user may not look at.

    Only what is needed for that is looked at, so that it is quick.
    """
    shop.quick = True
    daemon.find(shop)
    found = [one for name, check in CHECKS.items() if check.refuses for one in examine(name, check, shop)]
    return [one for one in found if one.refused], [one for one in found if one.unseen]


def examine(name: str, check: DoctorCheck, shop: DoctorContext) -> list[CheckFinding]:
    """Make one check and return what it says; it is added to `shop.found` too."""
    said: list[CheckFinding] = []

    def work() -> None:
        try:
            for item in check.run(shop):
                said.append(item)  # noqa: PERF402 - one by one: what was said before a time limit counts
        except Exception as error:  # noqa: BLE001 - one check that fails must not take the others with it
            said.append(shop.tell("check.broken", check.title, kind=type(error).__name__, error=error))

    # A thread that hangs (a dead network file system, say) must not keep the program from its end.
    worker = threading.Thread(target=work, name=f"check-{name}", daemon=True)
    worker.start()
    worker.join(check.seconds)
    done = list(said)
    if worker.is_alive():
        root_again()  # it may hang while it acts as another user
        done.append(shop.tell("check.hangs", check.title, seconds=check.seconds))
    findings = [_placed(name, item, shop) for item in done]
    shop.found += findings
    return findings


def _placed(name: str, said: CheckFinding, shop: DoctorContext) -> CheckFinding:
    """Return a finding with its check, and the place of its key in the configuration."""
    if said.refused and not said.file:
        file, line = where(shop.config_file, said.key)
        said = msgspec.structs.replace(said, file=str(file), line=line)
    return msgspec.structs.replace(said, check=name)
