"""The table of checks, and how one is made: within its time, also where it raises."""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import msgspec

from posd.cli.doctor import access, certificate, configuration, daemon, database, files, host, mdns, terminals
from posd.cli.doctor.context import CheckFinding, DoctorContext, Findings, SubjectFinding, failure
from posd.config.lines import where


@dataclass(frozen=True, slots=True)
class DoctorCheck:
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
        "daemon": DoctorCheck("Daemon", daemon.check_service, 30, needs_configuration=False),
        "files": DoctorCheck("Files and keys", files.check_files, 30, refuses=True),
        "access": DoctorCheck("Sockets and groups", access.check, 30, refuses=True),
        "database": DoctorCheck("Database", database.check, 30, refuses=True),
        "disk": DoctorCheck("Disk", host.check_disk, 10),
        "port": DoctorCheck("Ports", daemon.check_ports, 30, refuses=True),
        "firewall": DoctorCheck("Firewall", host.check_firewall, 20),
        "mdns": DoctorCheck("mDNS", mdns.check, 15),
        "certificate": DoctorCheck("Certificate", certificate.check_certificate, 20, refuses=True),
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
    said: list[SubjectFinding] = []

    def work() -> None:
        try:
            for item in check.run(shop):
                said.append(item)  # noqa: PERF402 - one by one: what was said before a time limit counts
        except Exception as error:  # noqa: BLE001 - one check that fails must not take the others with it
            said.append(
                failure(
                    check.title,
                    f"this could not be checked: a fault of posd doctor ({type(error).__name__}: {error})",
                    "please report it; the other lines count all the same",
                )
            )

    # A thread that hangs (a dead network file system, say) must not keep the program from its end.
    worker = threading.Thread(target=work, name=f"check-{name}", daemon=True)
    worker.start()
    worker.join(check.seconds)
    done = list(said)
    if worker.is_alive():
        done.append(
            failure(
                check.title,
                f"this check did not end within {check.seconds:g} s: what it looks at hangs",
                "try again; if it stays so, look at the disk or the network that it is about",
            )
        )
    findings = [_found(name, item, shop) for item in done]
    shop.found += findings
    return findings


def _found(name: str, said: SubjectFinding, shop: DoctorContext) -> CheckFinding:
    given = msgspec.structs.asdict(said)
    if said.refused and not said.file:
        file, line = where(shop.config_file, said.key)
        given |= {"file": str(file), "line": line}
    if said.unseen:
        given["commands"] = (f"sudo {shop.command('doctor')}",)
    return CheckFinding(check=name, **given)
