"""Run the tests that need root or a second system. These tests have their own report."""

import argparse
import importlib
import os
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.system.report import Report, Skipped, Stopped

#: Part -> subject of its tests. Each part is a module of this package with a function `run`.
PARTS = {
    "ansible": "the role of packaging/ansible on a booted Debian, run by ansible-core: dry, for real, and again",
    "deb": "the package: builds, installation on a bare Debian, upgrades, refused downgrades, removal, purge",
    "database": "the unchanged pages of the operations guide on a database that is lost, damaged or too old",
    "payments": "the pages of the operations guide on payments and shifts, followed at terminals",
    "systemd": "the units in a real systemd: boot, charge, watchdog, reload, socket, backups, restart, power",
    "prometheus": "the metrics and the alert rules, by promtool",
}
#: The releases of Debian: 12 and 13. All parts except `prometheus` need a bare Debian.
SUITES = ("bookworm", "trixie")


def main() -> None:
    parts = "\n".join(f"{name:12}{what}" for name, what in PARTS.items())
    form = argparse.RawDescriptionHelpFormatter
    options = argparse.ArgumentParser("python -m tests.system", description=__doc__, epilog=parts, formatter_class=form)
    options.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    options.add_argument("--suite", action="append", choices=SUITES, help="default: each release of Debian")
    given = options.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        options.error(f"there is no part {', '.join(sorted(unknown))}")
    report = Report()
    # SIGTERM raises an exception, so that every mounted and booted system is shut down in order
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with tempfile.TemporaryDirectory(prefix="posd-system-", dir="/var/tmp") as scratch:
        for report.part in given.parts or PARTS:
            for suite in given.suite or SUITES if report.part != "prometheus" else ("",):
                report.suite = suite
                with suppress(Stopped):
                    _run(report, Path(scratch))
    print(", ".join(f"{report.results[result]} {result}" for result in ("passed", "failed", "skipped")))
    sys.exit(1 if report.results["failed"] else 0)


def _run(report: Report, scratch: Path) -> None:
    if report.suite and os.geteuid() != 0:
        with report.check(PARTS[report.part], needed=True):
            raise Skipped("it needs root")
    importlib.import_module(f"tests.system.{report.part}").run(report, scratch)


if __name__ == "__main__":
    main()
