"""The Debian package: build, installation on a bare Debian, upgrade while a till pays, refusal, removal, and purge."""

import json
import os
import re
from contextlib import suppress
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Machine, host, need, until
from tests.system.report import Report, Stopped

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
    with report.check("one command builds the package as an ordinary user", needed=True):
        package = packages.given(scratch)
    if packages.GIVEN not in os.environ:
        if not (scratch / "again").exists():
            _built(report, package, scratch)
        _source(report, scratch)
    if report.suite == "bookworm":
        with suppress(Stopped), Machine(report, scratch, "-next") as machine:
            _next_debian(report, machine, package)
    with Machine(report, scratch) as machine:
        _installed(report, machine, package)
        _upgraded(report, machine, package, scratch)
        _removed(report, machine, package)


def _built(report: Report, package: Path, scratch: Path) -> None:
    with report.check("two builds of one checkout give the same bytes"):
        other = packages.build(scratch / "again")
        assert package.read_bytes() == other.read_bytes(), "the second build differs from the first"
    with report.check("the checksums are right, and the bill of materials names each library"):
        host("sh", "-c", f"cd {package.parent} && sha256sum --check SHA256SUMS")
        materials = json.loads(next(package.parent.glob("*.cdx.json")).read_text())
        assert {"cryptography", "zeroconf"} <= {item["name"] for item in materials["components"]}
    with report.check("lintian reports only what packaging/lintian-overrides explains"):
        need("lintian", "lintian")
        found = map(str, sorted(package.parent.glob("posd*.deb")))
        assert not (said := host("lintian", "--allow-root", "--profile", "debian", *found).stdout), said


def _source(report: Report, scratch: Path) -> None:
    """Build the source package twice on a clean Debian with its build dependencies."""
    build = "dpkg-source -x ../posd_*.dsc posd && cd posd && dpkg-buildpackage --build=binary --no-sign"
    with (
        Machine(report, scratch, "-source") as machine,
        report.check("two builds of the source package on a clean Debian without a network are equal"),
    ):
        machine.make()
        machine.run("useradd", "--create-home", "builder")
        made = [machine.put(file, "/home/builder") for file in packages.source(scratch)]
        machine.install("build-essential")
        machine.install(next(file for file in made if file.endswith(".dsc")), action="build-dep")
        machine.boot()
        sums = []
        for place in ("/home/builder/one", "/home/builder/two"):
            making = f"mkdir {place} && cd {place} && {build}"
            machine.run("sh", "-c", making, user="builder", seconds=900)
            sums.append(machine.out("sh", "-c", f"cd {place} && sha256sum *.deb"))
        assert sums[0] == sums[1], sums


def _installed(report: Report, machine: Machine, package: Path) -> None:
    with report.check("apt installs the package in an image of a bare Debian that does not run", needed=True):
        machine.make()
        machine.install("python3-psycopg", option="--download-only")
        machine.install(package)
        assert not machine.out("dpkg", "--verify", "posd")
        machine.run("posd", "--version")
    with report.check("user, groups and modes are right, and the image has no key that clones would share"):
        _modes(machine, MODES)
        assert not machine.out("dpkg-query", "-W", "-f", "${Conffiles}", "posd")
        assert machine.out("cat", shop.CONFIG) == machine.out("cat", "/usr/share/posd/config.toml")
        assert machine.out("id", "-nG", "posd").split() == ["posd", "posd-till", "posd-admin", "posd-feed"]
        assert not list(machine.root.glob("var/lib/posd/tls")), "the installation made a certificate in the image"
        assert "the configuration is right" in machine.out("posd", "config", "check", user="posd")
    with report.check("posd runs after the first boot with the configuration of the package"):
        machine.boot()
        journal = machine.run("journalctl", "-u", "posd", "-n", "40", "--no-pager", check=False).stdout
        assert (machine.states(), machine.restarts()) == (("active", "active"), 0), journal
        _modes(machine, RUNNING)
        assert machine.show("posd-backup.timer", "ActiveState") == {"ActiveState": "active"}
        _compiled(machine)
    with report.check("a shop is configured, and a card is charged"):
        shop.begin(machine)
    with report.check("one command adds an announced terminal and pins its key"):
        options = ("--serial", "SN-0009", "--listen", f"{shop.ADDRESS}:7868", "--mdns-interface", shop.ADDRESS)
        machine.run("systemd-run", "--collect", "--unit=terminal9", "posd", "simulate", *options)
        until(lambda: "SN-0009" in machine.out("posd", "terminals", "--all", "--json"), "found by mDNS", 60)
        shown = json.loads(machine.out("posd", "terminals", "pin", "SN-0009", "--json"))
        add = ("posd", "terminals", "add", "SN-0009", "--yes", "--json", "--pin")
        machine.fails(*add, "0" * 64, codes=(1,))
        assert not (machine.root / "etc/posd/config.d").exists()
        added = json.loads(machine.out(*add, shown["fingerprint_sha256"]))
        assert (added["in_use"], added["public_key_sha256"]) == (True, shown["public_key_sha256"]), added
        lines = machine.out("posd", "terminals", "--json")
        assert any(item["serial"] == "SN-0009" and item["reachable"] for item in json.loads(lines)["terminals"]), lines
        machine.run("systemctl", "stop", "terminal9")
        machine.run("rm", "-r", "/etc/posd/config.d")
        machine.run("systemctl", "reload", "posd")
    with report.check("every user of the machine can read the CA, and posd undoes a chown of the till's socket"):
        machine.run("test", "-s", "/run/posd/ca.crt")
        ca = machine.out("cat", "/var/lib/posd/tls/ca.crt")
        assert machine.out("posd", "tls", "ca", user="till") == ca
        machine.run("chown", "posd:root", "/run/posd/till.sock")
        machine.run("systemctl", "restart", "posd")
        assert machine.out("stat", "-c", "%U %G %a", "/run/posd/till.sock") == RUNNING["/run/posd/till.sock"]
        shop.paid(machine)
    with report.check("head office's package has the collector, and posd names this package without it"):
        refused = machine.run("posd", "collect", check=False)
        assert (refused.returncode, refused.stderr.count("\n")) == (2, 1), refused.stderr
        machine.install(next(package.parent.glob("posd-fleet_*.deb")))
        own = "import typing_extensions, psycopg; print(typing_extensions.__file__)"
        assert machine.out("/opt/posd/bin/python3", "-I", "-c", own).startswith("/opt/posd/")
        machine.fails("posd", "collect", "--check", codes=(3,))  # the machine has no PostgreSQL
        machine.run("apt-get", "purge", "-y", "posd-fleet")
        assert not machine.out("dpkg", "--verify", "posd")


def _upgraded(report: Report, machine: Machine, package: Path, scratch: Path) -> None:
    first, versions = package.name.split("_")[1], ("9.9.0", "9.9.1", "9.9.2")
    made = (packages.later(scratch, package, name, migrates=name == "9.9.2") for name in versions)
    later = [machine.put(file) for file in made]
    with report.check("an upgrade while a till pays without a pause refuses no call and loses no payment"):
        kept = machine.out("cat", shop.CONFIG)
        with shop.paying(machine):
            machine.run("dpkg", "-i", later[0])
        assert "9.9.0" in machine.out("posd", "status", "--json") or "9.9.0" in machine.out("posd", "--version")
        assert machine.out("cat", shop.CONFIG) == kept
    with report.check("the upgrade made a complete backup first"):
        backup = f"/var/lib/posd/backups/before-upgrade-{first}.db"
        machine.run("posd", "verify", backup, user="posd")
    with report.check("if the new version refuses the configuration, the old version still runs, and dpkg continues"):
        before = machine.main_pid()
        machine.write(shop.CONFIG, "[webhooks]\nno_such_key = 1\n")
        machine.run("dpkg", "-i", later[1])
        assert machine.main_pid() == before
        assert machine.out("dpkg-query", "-W", "-f", "${Status}", "posd") == "install ok installed"
        machine.write(shop.CONFIG, kept)
        machine.run("systemctl", "restart", "posd")
        shop.paid(machine)
    with report.check("an upgrade does not start a unit that a person has stopped or disabled"):
        for stop, start in (("stop", "start"), ("disable --now", "enable --now")):
            machine.run("systemctl", *stop.split(), "posd")
            machine.run("dpkg", "-i", later[1])
            assert machine.states() == ("inactive", "inactive")
            machine.run("systemctl", *start.split(), "posd")
            assert machine.states() == ("active", "active")
    with report.check("after a change of the system's Python, posd's modules are compiled again and posd is restarted"):
        before = machine.main_pid()
        machine.run("sh", "-c", "find /opt/posd -name __pycache__ -exec rm -r {} +")
        machine.run("dpkg-trigger", "--by-package=python3-minimal", "/usr/bin/python3")
        machine.run("dpkg", "--triggers-only", "--pending")
        _compiled(machine)
        assert machine.main_pid() != before
    with report.check("an older version with the same schema replaces posd while a till pays"):
        with shop.paying(machine):
            machine.run("dpkg", "-i", later[0])
        assert "9.9.0" in machine.out("posd", "status", "--json")
    with report.check("dpkg refuses an older version with another schema, and nothing changes"):
        payments = shop.payments(machine)
        machine.run("dpkg", "-i", later[2])
        before = machine.main_pid()
        refused = machine.fails("dpkg", "-i", later[0])
        assert machine.out("dpkg-query", "-W", "-f", "${Status} ${Version}", "posd") == "install ok installed 9.9.2-1"
        assert machine.main_pid() == before
        assert not machine.out("dpkg", "--verify", "posd")
        shop.paid(machine)
    with report.check("the downgrade that the refusal names works: remove, install the older version, restore"):
        restore = re.findall(r"runuser .*\.db", refused)
        machine.run("apt-get", "remove", "-y", "posd")
        machine.run("dpkg", "-i", later[0])
        machine.run("systemctl", "stop", "posd")
        machine.run(*restore[0].split(), "--yes")
        machine.run("systemctl", "start", "posd")
        machine.run("posd", "restore", "--seen", "--operator", "Ana", "--note", "looked")
        assert "9.9.0" in machine.out("posd", "--version")
        assert len(shop.payments(machine)) == len(payments) + 1


def _removed(report: Report, machine: Machine, package: Path) -> None:
    with report.check("a removal leaves configuration and payments, and a new installation uses them"):
        payments = shop.payments(machine)
        machine.run("apt-get", "remove", "-y", "posd")
        left = machine.run("find", "/proc", "-maxdepth", "1", "-user", "posd", check=False).stdout.split()
        assert not left, f"the removal left processes of posd's user: {left}"
        machine.run("sh", "-c", "! ls -d /opt/posd /usr/bin/posd /run/posd | grep .")
        machine.run("ls", "/var/lib/posd/posd.db", shop.CONFIG)
        machine.run("dpkg", "-i", f"/root/{package.name}")
        assert shop.payments(machine) == payments
        shop.paid(machine)
    with report.check("a purge leaves only the record of payments, and prints its path"):
        said = machine.out("apt-get", "purge", "-y", "posd")
        found = re.search(r"kept in (/var/backups/posd-\w+)", said)
        assert found, said
        assert machine.out("stat", "-c", "%U %a", found[1]) == "root 700"
        machine.run("test", "-s", f"{found[1]}/posd.db")
        where = ("etc", "opt", "usr", "var", "run", "lib")
        # only posd used /opt, so the purge may have removed /opt
        places = [f"/{name}" for name in where if (machine.root / name).exists()]
        left = machine.out("find", *places, "-xdev", "-iname", "*posd*").splitlines()
        left = [path for path in left if not path.startswith((found[1], "/usr/share/doc-base"))]
        assert not left, left
        units = ("systemctl", "list-units", "--all", "--plain", "--no-legend", "posd*")
        until(lambda: not machine.out(*units), "no unit", 30)


def _next_debian(report: Report, machine: Machine, package: Path) -> None:
    """Upgrade a machine from Debian 12 to 13 in place during payments. Python, OpenSSL and systemd change."""
    upgrade = {"action": "full-upgrade", "option": "--option=Dpkg::Options::=--force-confdef"}
    with report.check("a shop runs on Debian 12, and the packages of Debian 13 are downloaded", needed=True):
        machine.make()
        machine.install(package)
        machine.run("sed", "-i", "s/bookworm/trixie/g", "/etc/apt/sources.list")
        machine.run("apt-get", "update", "-q")
        machine.install("--download-only", **upgrade)
        machine.boot()
        shop.begin(machine)
    with report.check("an upgrade to Debian 13 while a till pays refuses no call and loses no payment"):
        with shop.paying(machine):
            machine.install("--no-download", **upgrade)
        assert _python(machine).endswith("python3.13")
        _compiled(machine)
    with report.check("without the old Python and after a boot, posd has its payments and charges"):
        machine.run("apt-get", "autoremove", "-y")
        payments = shop.payments(machine)
        machine.power_off()
        machine.boot()
        shop.network(machine)
        shop.terminal(machine)
        assert shop.payments(machine) == payments
        shop.paid(machine)
        shop.compare(machine)


def _python(machine: Machine) -> str:
    """Return the Python that runs the daemon."""
    return machine.out("readlink", "-f", f"/proc/{machine.main_pid()}/exe")


def _compiled(machine: Machine) -> None:
    """Check that all of posd's modules are compiled by the Python that runs posd."""
    tag = machine.out("/opt/posd/bin/python3", "-c", "import sys; print(sys.implementation.cache_tag)")
    site = machine.root / "opt/posd/lib/site-packages/posd"
    compiled = {file.parents[1] / file.name.split(".")[0] for file in site.rglob(f"*.{tag}.pyc")}
    assert not (missing := [file for file in site.rglob("*.py") if file.with_suffix("") not in compiled]), missing[:5]


def _modes(machine: Machine, wanted: dict[str, str]) -> None:
    found = {path: machine.out("stat", "-c", "%U %G %a", path) for path in wanted}
    assert found == wanted
