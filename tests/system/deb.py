"""The Debian package: build, installation on a bare Debian, upgrade while a till pays, refusal, removal, and purge."""

import json
import os
import re
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Machine, host, need, until
from tests.system.report import Report

PART = "deb"
#: Path -> owner, group and mode after the installation.
MODES = {
    "/etc/posd/config.toml": "root root 644",
    "/opt/posd/bin/posd": "root root 755",
    "/usr/bin/posd": "root root 777",
    "/var/lib/posd": "posd posd 700",
    "/var/lib/posd/backups": "posd posd 700",
}
#: Path -> owner, group and mode after the first start, while posd runs.
RUNNING = {
    "/run/posd": "posd posd 755",
    "/run/posd/till.sock": "posd posd-till 660",
    "/run/posd/admin.sock": "posd posd-admin 660",
    "/var/lib/posd/posd.db": "posd posd 600",
    "/var/lib/posd/callback.key": "posd posd 600",
    "/var/lib/posd/tls/server.key": "posd posd 600",
}


def run(report: Report, scratch: Path) -> None:
    """Run the part."""
    with report.check(PART, "the machine has the tools of the checks"):
        need("mmdebstrap", "mmdebstrap")
        need("lintian", "lintian")
        need("systemd-nspawn", "systemd-container")
    if report.checks[-1].result != "passed":
        return
    package = _built(report, scratch)
    if package is None:
        return
    if report.suite == "bookworm":
        _next_debian(report, package, scratch)
    if packages.GIVEN not in os.environ:
        _source(report, scratch)
    machine = Machine(scratch / f"deb-{report.suite}", f"posd-deb-{os.getpid()}", report.suite)
    try:
        with report.check(PART, "a bare Debian is prepared"):
            machine.make()
        if report.checks[-1].result != "passed":
            return
        if _installed(report, machine, package):
            _upgraded(report, machine, package, scratch)
            _removed(report, machine, package)
    finally:
        machine.close()


def _built(report: Report, scratch: Path) -> Path | None:
    built = []
    with report.check(PART, "one command builds the package as an ordinary user") as check:
        built.append(packages.given(scratch))
        check.note(f"{built[0].name}, {built[0].stat().st_size / 2**20:.1f} MiB")
        check.note(host("dpkg-deb", "-f", str(built[0]), "Depends").stdout)
    if built and packages.GIVEN not in os.environ and not (scratch / "again").exists():
        with report.check(PART, "two builds of one checkout give the same bytes"):
            other = packages.build(scratch / "again")
            assert packages.same(built[0], other), "the second build differs from the first"
        with report.check(PART, "the checksums are right, and the bill of materials names each library") as check:
            check.note(host("sh", "-c", f"cd {built[0].parent} && sha256sum --check SHA256SUMS").stdout)
            materials = json.loads(next(built[0].parent.glob("*.cdx.json")).read_text())
            check.note(", ".join(f"{item['name']} {item['version']}" for item in materials["components"]))
            assert {"cryptography", "zeroconf"} <= {item["name"] for item in materials["components"]}
        with report.check(PART, "lintian reports only what packaging/lintian-overrides explains") as check:
            found = map(str, sorted(built[0].parent.glob("posd*.deb")))
            check.note(host("lintian", "--allow-root", "--profile", "debian", *found).stdout or "nothing")
            assert check.notes == ["nothing"]
    return built[0] if built else None


def _source(report: Report, scratch: Path) -> None:
    """Build the source package twice on a clean Debian with its build dependencies."""
    machine = Machine(scratch / f"source-{report.suite}", f"posd-source-{os.getpid()}", report.suite)
    build = "dpkg-source -x ../posd_*.dsc posd && cd posd && dpkg-buildpackage --build=binary --no-sign"
    try:
        with report.check(
            PART, "two builds of the source package on a clean Debian without a network are equal"
        ) as check:
            made = packages.source(scratch)
            machine.make()
            machine.run("useradd", "--create-home", "builder")
            for file in made:
                machine.put(file, "/home/builder/")
            machine.run("apt-get", "update", "-q")
            install = ("apt-get", "-y", "--no-install-recommends")
            machine.run(*install, "install", "build-essential", seconds=900)
            machine.run(
                *install, "build-dep", f"/home/builder/{next(f.name for f in made if f.suffix == '.dsc')}", seconds=900
            )
            machine.boot()
            sums = []
            for place in ("one", "two"):
                machine.run(
                    "sh",
                    "-c",
                    f"cd /home/builder && mkdir {place} && cd {place} && {build}",
                    user="builder",
                    seconds=900,
                )
                sums.append(machine.out("sh", "-c", f"cd /home/builder/{place} && sha256sum *.deb"))
            check.note(sums[0])
            assert sums[0] == sums[1]
    finally:
        machine.close()


def _installed(report: Report, machine: Machine, package: Path) -> bool:
    with report.check(PART, "apt installs the package in an image of a bare Debian that does not run") as check:
        machine.put(package, "/root/")
        machine.run("apt-get", "update", "-q")
        install = ("apt-get", "install", "-y", "--no-install-recommends", f"/root/{package.name}")
        # the download comes before the boot, because the booted machine has no network
        machine.run(*install[:-1], "--download-only", "python3-psycopg", seconds=600)
        check.note("\n".join(re.findall(r"^\d+ upgraded.*", machine.out(*install, seconds=600), re.MULTILINE)))
        assert not machine.out("dpkg", "--verify", "posd")
        check.note(machine.out("posd", "--version"))
    if report.checks[-1].result != "passed":
        return False
    with report.check(PART, "user, groups and modes are right, and the image has no key that clones would share"):
        _modes(machine, MODES)
        assert not machine.out("dpkg-query", "-W", "-f", "${Conffiles}", "posd")
        assert machine.out("cat", shop.CONFIG) == machine.out("cat", "/usr/share/posd/config.toml")
        assert machine.out("id", "-nG", "posd").split() == ["posd", "posd-till", "posd-admin", "posd-feed"]
        assert not list(machine.root.glob("var/lib/posd/tls")), "the installation made a certificate in the image"
        assert "the configuration is right" in machine.out("posd", "config", "check", user="posd")
    with report.check(PART, "posd runs after the first boot with the configuration of the package") as check:
        check.note(f"booted in {machine.boot():.1f} s")
        shown = machine.show("posd.service", "ActiveState", "StatusText", "NRestarts")
        check.note(str(shown))
        assert (shown["ActiveState"], shown["NRestarts"]) == ("active", "0"), _journal(machine)
        _modes(machine, RUNNING)
        for unit in ("posd.socket", "posd-backup.timer"):
            assert machine.show(unit, "ActiveState")["ActiveState"] == "active", unit
        _compiled(machine)
    with report.check(PART, "a shop is configured, and a card is charged"):
        shop.configure(machine)
        shop.open_shop(machine)
        machine.run("systemctl", "restart", "posd")
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(PART, "one command adds an announced terminal and pins its key") as check:
        options = ("--serial", "SN-0009", "--listen", f"{shop.ADDRESS}:7868", "--mdns-interface", shop.ADDRESS)
        machine.run("systemd-run", "--collect", "--unit=terminal9", "posd", "simulate", *options)
        until(lambda: "SN-0009" in machine.out("posd", "terminals", "--all", "--json"), "found by mDNS", 60)
        shown = json.loads(machine.out("posd", "terminals", "pin", "SN-0009", "--json"))
        add = ("posd", "terminals", "add", "SN-0009", "--yes", "--json", "--pin")
        refused = machine.run(*add, "0" * 64, check=False)
        assert (refused.returncode, machine.root.joinpath("etc/posd/config.d").exists()) == (1, False)
        added = json.loads(machine.out(*add, shown["fingerprint_sha256"]))
        check.note(json.dumps(added, indent=1))
        assert (added["in_use"], added["public_key_sha256"]) == (True, shown["public_key_sha256"])
        lines = machine.out("posd", "terminals", "--json")
        assert any(item["serial"] == "SN-0009" and item["reachable"] for item in json.loads(lines)["terminals"]), lines
        machine.run("systemctl", "stop", "terminal9")
        machine.run("rm", "-r", "/etc/posd/config.d")
        machine.run("systemctl", "reload", "posd")
    with report.check(PART, "every user of the machine can read the CA, and posd undoes a chown of the till's socket"):
        machine.run("test", "-s", "/run/posd/ca.crt")
        ca = machine.out("cat", "/var/lib/posd/tls/ca.crt")
        assert machine.out("posd", "tls", "ca", user="till") == ca
        machine.run("chown", "posd:root", "/run/posd/till.sock")
        machine.run("systemctl", "restart", "posd")
        assert machine.out("stat", "-c", "%U %G %a", "/run/posd/till.sock") == RUNNING["/run/posd/till.sock"]
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(PART, "head office's package has the collector, and posd names this package without it") as check:
        refused = machine.run("posd", "collect", check=False)
        check.note(refused.stderr)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
        fleet = next(package.parent.glob("posd-fleet_*.deb"))
        machine.put(fleet, "/root/")
        machine.run("apt-get", "install", "-y", "--no-install-recommends", f"/root/{fleet.name}")
        own = "import typing_extensions, psycopg; print(typing_extensions.__file__)"
        assert machine.out("/opt/posd/bin/python3", "-I", "-c", own).startswith("/opt/posd/")
        check.note(machine.run("posd", "collect", "--check", check=False).stderr)  # the machine has no PostgreSQL
        assert machine.run("posd", "collect", "--check", check=False).returncode == 3
        machine.run("apt-get", "purge", "-y", "posd-fleet")
        assert not machine.out("dpkg", "--verify", "posd")
    return report.checks[-1].result == "passed"


def _upgraded(report: Report, machine: Machine, package: Path, scratch: Path) -> None:
    first = package.name.split("_")[1]
    versions = ("9.9.0", "9.9.1", "9.9.2")
    for name in versions:
        machine.put(packages.later(scratch, package, name, migrates=name == "9.9.2"), "/root/")
    later = [package.name.replace(first, f"{name}-1") for name in versions]
    with report.check(
        PART, "an upgrade while a till pays without a pause refuses no call and loses no payment"
    ) as check:
        kept = machine.out("cat", shop.CONFIG)
        with shop.paying(machine) as told:
            check.note(machine.out("dpkg", "-i", f"/root/{later[0]}"))
        check.note(str(told))
        assert told["refused"] == 0
        assert set(told["outcomes"]) == {"approved"}
        assert "9.9.0" in machine.out("posd", "status", "--json") or "9.9.0" in machine.out("posd", "--version")
        assert machine.out("cat", shop.CONFIG) == kept
    with report.check(PART, "the upgrade made a complete backup first") as check:
        backup = f"/var/lib/posd/backups/before-upgrade-{first}.db"
        check.note(machine.out("posd", "verify", backup, user="posd"))
    with report.check(
        PART, "if the new version refuses the configuration, the old version still runs, and dpkg continues"
    ) as check:
        before = machine.show("posd.service", "MainPID")
        machine.write(shop.CONFIG, "[webhooks]\nno_such_key = 1\n")
        check.note(machine.run("dpkg", "-i", f"/root/{later[1]}").stderr)
        assert machine.show("posd.service", "MainPID") == before
        assert machine.out("dpkg-query", "-W", "-f", "${Status}", "posd") == "install ok installed"
        machine.write(shop.CONFIG, kept)
        machine.run("systemctl", "restart", "posd")
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(PART, "an upgrade does not start a unit that a person has stopped or disabled"):
        for stop, start in ((("stop",), ("start",)), (("disable", "--now"), ("enable", "--now"))):
            machine.run("systemctl", *stop, "posd")
            machine.run("dpkg", "-i", f"/root/{later[1]}")
            assert _states(machine) == ("inactive", "inactive")
            machine.run("systemctl", *start, "posd")
            assert _states(machine) == ("active", "active")
    with report.check(
        PART, "after a change of the system's Python, posd's modules are compiled again and posd is restarted"
    ):
        before = machine.show("posd.service", "MainPID")
        machine.run("sh", "-c", "find /opt/posd -name __pycache__ -exec rm -r {} +")
        machine.run("dpkg-trigger", "--by-package=python3-minimal", "/usr/bin/python3")
        machine.run("dpkg", "--triggers-only", "--pending")
        _compiled(machine)
        assert machine.show("posd.service", "MainPID") != before
    with report.check(PART, "an older version with the same schema replaces posd while a till pays") as check:
        with shop.paying(machine) as told:
            check.note(machine.out("dpkg", "-i", f"/root/{later[0]}"))
        check.note(str(told))
        assert told["refused"] == 0
        assert set(told["outcomes"]) == {"approved"}
        assert "9.9.0" in machine.out("posd", "status", "--json")
    with report.check(PART, "dpkg refuses an older version with another schema, and nothing changes") as check:
        payments = shop.payments(machine)
        machine.run("dpkg", "-i", f"/root/{later[2]}")
        before = machine.show("posd.service", "MainPID")
        refused = machine.run("dpkg", "-i", f"/root/{later[0]}", check=False)
        check.note(refused.stderr)
        assert refused.returncode != 0
        assert machine.out("dpkg-query", "-W", "-f", "${Status} ${Version}", "posd") == "install ok installed 9.9.2-1"
        assert machine.show("posd.service", "MainPID") == before
        assert not machine.out("dpkg", "--verify", "posd")
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(
        PART, "the downgrade that the refusal names works: remove, install the older version, restore"
    ) as check:
        restore = re.findall(r"runuser .*\.db", refused.stderr)
        machine.run("apt-get", "remove", "-y", "posd")
        machine.run("dpkg", "-i", f"/root/{later[0]}")
        machine.run("systemctl", "stop", "posd")
        check.note(machine.run(*restore[0].split(), "--yes").stdout)
        machine.run("systemctl", "start", "posd")
        machine.run("posd", "restore", "--seen", "--operator", "Ana", "--note", "looked")
        assert "9.9.0" in machine.out("posd", "--version")
        assert len(shop.payments(machine)) == len(payments) + 1


def _removed(report: Report, machine: Machine, package: Path) -> None:
    with report.check(PART, "a removal leaves configuration and payments, and a new installation uses them"):
        payments = shop.payments(machine)
        machine.run("apt-get", "remove", "-y", "posd")
        left = machine.run("find", "/proc", "-maxdepth", "1", "-user", "posd", check=False).stdout.split()
        assert not left, f"the removal left processes of posd's user: {left}"
        for path in ("/opt/posd", "/usr/bin/posd", "/run/posd"):
            assert not (machine.root / path.lstrip("/")).exists(), path
        assert machine.run("test", "-e", "/var/lib/posd/posd.db").returncode == 0
        assert machine.run("test", "-e", shop.CONFIG).returncode == 0
        machine.run("dpkg", "-i", f"/root/{package.name}")
        assert shop.payments(machine) == payments
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(PART, "a purge leaves only the record of payments, and prints its path") as check:
        said = machine.out("apt-get", "purge", "-y", "posd")
        found = re.search(r"kept in (/var/backups/posd-\w+)", said)
        assert found, said
        check.note(found[0])
        assert machine.out("stat", "-c", "%U %a", found[1]) == "root 700"
        assert machine.run("test", "-s", f"{found[1]}/posd.db").returncode == 0
        where = ("etc", "opt", "usr", "var", "run", "lib")
        # only posd used /opt, so the purge may have removed /opt
        places = [f"/{name}" for name in where if (machine.root / name).exists()]
        left = machine.out("find", *places, "-xdev", "-iname", "*posd*").splitlines()
        left = [path for path in left if not path.startswith((found[1], "/usr/share/doc-base"))]
        check.note(f"left: {left}")
        assert not left
        until(
            lambda: not machine.out("systemctl", "list-units", "--all", "--plain", "--no-legend", "posd*"),
            "no unit",
            30,
        )


def _next_debian(report: Report, package: Path, scratch: Path) -> None:
    """Upgrade a machine from Debian 12 to 13 in place during payments. Python, OpenSSL and systemd change."""
    machine = Machine(scratch / "next-debian", f"posd-next-{os.getpid()}", report.suite)
    upgrade = ("apt-get", "full-upgrade", "-y", "--no-install-recommends", "-o", "Dpkg::Options::=--force-confdef")
    try:
        with report.check(PART, "a shop runs on Debian 12, and the packages of Debian 13 are downloaded") as check:
            machine.make()
            machine.put(package, "/root/")
            machine.run("apt-get", "update", "-q")
            machine.run("apt-get", "install", "-y", "--no-install-recommends", f"/root/{package.name}", seconds=600)
            machine.run("sed", "-i", "s/bookworm/trixie/g", "/etc/apt/sources.list")
            machine.run("apt-get", "update", "-q")
            # the download comes before the boot, because the booted machine has no network
            machine.run(*upgrade, "--download-only", seconds=900)
            machine.boot()
            shop.configure(machine)
            shop.open_shop(machine)
            machine.run("systemctl", "restart", "posd")
            assert shop.result(shop.charge(machine)) == "approved"
            check.note(_python(machine))
        if report.checks[-1].result != "passed":
            return
        with report.check(
            PART, "an upgrade to Debian 13 while a till pays refuses no call and loses no payment"
        ) as check:
            with shop.paying(machine) as told:
                machine.run(*upgrade, "--no-download", seconds=1200)
            check.note(f"{told}\n{_python(machine)}")
            assert told["refused"] == 0
            assert set(told["outcomes"]) == {"approved"}
            assert _python(machine).endswith("python3.13")
            _compiled(machine)
        with report.check(PART, "without the old Python and after a boot, posd has its payments and charges") as check:
            machine.run("apt-get", "autoremove", "-y")
            payments = shop.payments(machine)
            machine.power_off()
            check.note(f"booted in {machine.boot():.1f} s")
            shop.network(machine)
            shop.terminal(machine, "SN-0001", shop.ADDRESS)
            assert shop.payments(machine) == payments
            assert shop.result(shop.charge(machine)) == "approved"
            counted = shop.approvals(machine)
            check.note(f"approved by the terminal and by posd: {counted}")
            assert counted[0] == counted[1]
    finally:
        machine.close()


def _python(machine: Machine) -> str:
    """Return the Python that runs the daemon."""
    return machine.out("readlink", "-f", f"/proc/{machine.show('posd.service', 'MainPID')['MainPID']}/exe")


def _compiled(machine: Machine) -> None:
    """Check that all of posd's modules are compiled by the Python that runs posd."""
    tag = machine.out("/opt/posd/bin/python3", "-c", "import sys; print(sys.implementation.cache_tag)")
    site = machine.root / "opt/posd/lib/site-packages/posd"
    missing = [
        str(file) for file in site.rglob("*.py") if not (file.parent / f"__pycache__/{file.stem}.{tag}.pyc").exists()
    ]
    assert not missing, missing[:5]


def _states(machine: Machine) -> tuple[str, ...]:
    return tuple(machine.show(unit, "ActiveState")["ActiveState"] for unit in ("posd.service", "posd.socket"))


def _modes(machine: Machine, wanted: dict[str, str]) -> None:
    found = {path: machine.out("stat", "-c", "%U %G %a", path) for path in wanted}
    assert found == wanted


def _journal(machine: Machine) -> str:
    return machine.run("journalctl", "-u", "posd", "-n", "40", "--no-pager", check=False).stdout
