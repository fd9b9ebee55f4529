"""The Debian package: built, installed on a bare Debian, upgraded under a paying till, refused, removed and purged."""

import os
import re
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Machine, host, need, until
from tests.system.report import Report

PART = "deb"
#: path -> owner, group and mode after the installation.
MODES = {
    "/etc/posd/config.toml": "root root 644",
    "/opt/posd/bin/posd": "root root 755",
    "/usr/bin/posd": "root root 777",
    "/var/lib/posd": "posd posd 700",
    "/var/lib/posd/backups": "posd posd 700",
}
#: The same while it runs for the first time.
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
    with report.check(PART, "what it needs is there"):
        need("mmdebstrap", "mmdebstrap")
        need("lintian", "lintian")
        need("systemd-nspawn", "systemd-container")
    if report.checks[-1].result != "passed":
        return
    package = _built(report, scratch)
    if package is None:
        return
    if report.suite == "bookworm":
        _former(report, package, scratch)
    machine = Machine(scratch / f"deb-{report.suite}", f"posd-deb-{os.getpid()}", report.suite)
    try:
        with report.check(PART, "a bare Debian is laid out"):
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
    with report.check(PART, "one command builds the package, without root's rights") as check:
        built.append(packages.given(scratch))
        check.note(f"{built[0].name}, {built[0].stat().st_size / 2**20:.1f} MiB")
        check.note(host("dpkg-deb", "-f", str(built[0]), "Depends").stdout)
    if built and packages.GIVEN not in os.environ and not (scratch / "again").exists():
        with report.check(PART, "the same checkout gives the same bytes"):
            other = packages.build(scratch / "again")
            assert packages.same(built[0], other), "the second build differs from the first"
        with report.check(PART, "lintian finds nothing but what packaging/lintian-overrides explains") as check:
            check.note(host("lintian", "--allow-root", "--profile", "debian", str(built[0])).stdout or "nothing")
            assert check.notes == ["nothing"]
    return built[0] if built else None


def _installed(report: Report, machine: Machine, package: Path) -> bool:
    with report.check(PART, "apt installs it on a bare Debian, in an image that does not run") as check:
        machine.put(package, "/root/")
        machine.run("apt-get", "update", "-q")
        install = ("apt-get", "install", "-y", "--no-install-recommends", f"/root/{package.name}")
        check.note("\n".join(re.findall(r"^\d+ upgraded.*", machine.out(*install, seconds=600), re.MULTILINE)))
        assert not machine.out("dpkg", "--verify", "posd")
        check.note(machine.out("posd", "--version"))
    if report.checks[-1].result != "passed":
        return False
    with report.check(PART, "user, groups and modes are right; an image holds no key that its clones would share"):
        _modes(machine, MODES)
        assert not machine.out("dpkg-query", "-W", "-f", "${Conffiles}", "posd")
        assert machine.out("cat", shop.CONFIG) == machine.out("cat", "/usr/share/posd/config.toml")
        assert machine.out("id", "-nG", "posd").split() == ["posd", "posd-till", "posd-admin"]
        assert not list(machine.root.glob("var/lib/posd/tls")), "a certificate was made in the image"
        assert "the configuration is right" in machine.out("posd", "config", "check", user="posd")
    with report.check(PART, "it runs after the first boot, with the configuration as it came") as check:
        check.note(f"booted in {machine.boot():.1f} s")
        shown = machine.show("posd.service", "ActiveState", "StatusText", "NRestarts")
        check.note(str(shown))
        assert (shown["ActiveState"], shown["NRestarts"]) == ("active", "0"), _journal(machine)
        _modes(machine, RUNNING)
        for unit in ("posd.socket", "posd-backup.timer", "posd-tls-renew.timer"):
            assert machine.show(unit, "ActiveState")["ActiveState"] == "active", unit
        _compiled(machine)
    with report.check(PART, "a shop is configured, and a card is charged"):
        shop.configure(machine)
        shop.open_shop(machine)
        machine.run("systemctl", "restart", "posd")
        assert shop.result(shop.charge(machine)) == "approved"
    return report.checks[-1].result == "passed"


def _upgraded(report: Report, machine: Machine, package: Path, scratch: Path) -> None:
    first = package.name.split("_")[1]
    for name in ("9.9.0", "9.9.1"):
        machine.put(packages.later(scratch, package, name), "/root/")
    later = [package.name.replace(first, f"{name}-1") for name in ("9.9.0", "9.9.1")]
    with report.check(PART, "upgraded while a till pays without a pause: no call refused, no payment lost") as check:
        kept = machine.out("cat", shop.CONFIG)
        with shop.paying(machine) as told:
            check.note(machine.out("dpkg", "-i", f"/root/{later[0]}"))
        check.note(str(told))
        assert told["refused"] == 0
        assert set(told["outcomes"]) == {"approved"}
        assert "9.9.0" in machine.out("posd", "status", "--json") or "9.9.0" in machine.out("posd", "--version")
        assert machine.out("cat", shop.CONFIG) == kept
    with report.check(PART, "a backup was made before the upgrade, and it is whole") as check:
        backup = f"/var/lib/posd/backups/before-upgrade-{first}.db"
        check.note(machine.out("posd", "verify", backup, user="posd"))
    with report.check(PART, "a configuration that the new version refuses: the old one runs on, dpkg goes on") as check:
        before = machine.show("posd.service", "MainPID")
        machine.write(shop.CONFIG, "[webhooks]\nno_such_key = 1\n")
        check.note(machine.run("dpkg", "-i", f"/root/{later[1]}").stderr)
        assert machine.show("posd.service", "MainPID") == before
        assert machine.out("dpkg-query", "-W", "-f", "${Status}", "posd") == "install ok installed"
        machine.write(shop.CONFIG, kept)
        machine.run("systemctl", "restart", "posd")
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(PART, "what a person has stopped or disabled is not started by an upgrade"):
        for stop, start in ((("stop",), ("start",)), (("disable", "--now"), ("enable", "--now"))):
            machine.run("systemctl", *stop, "posd")
            machine.run("dpkg", "-i", f"/root/{later[1]}")
            assert _states(machine) == ("inactive", "inactive")
            machine.run("systemctl", *start, "posd")
            assert _states(machine) == ("active", "active")
    with report.check(PART, "with another Python in the system its modules are compiled anew, and it is restarted"):
        before = machine.show("posd.service", "MainPID")
        machine.run("sh", "-c", "find /opt/posd -name __pycache__ -exec rm -r {} +")
        machine.run("dpkg-trigger", "--by-package=python3-minimal", "/usr/bin/python3")
        machine.run("dpkg", "--triggers-only", "--pending")
        _compiled(machine)
        assert machine.show("posd.service", "MainPID") != before
    with report.check(PART, "an older version is refused, and nothing changes") as check:
        before = machine.show("posd.service", "MainPID")
        refused = machine.run("dpkg", "-i", f"/root/{later[0]}", check=False)
        check.note(refused.stderr)
        assert refused.returncode != 0
        assert "refused to put the older posd 9.9.0-1" in refused.stderr
        assert machine.out("dpkg-query", "-W", "-f", "${Status} ${Version}", "posd") == "install ok installed 9.9.1-1"
        assert machine.show("posd.service", "MainPID") == before
        assert not machine.out("dpkg", "--verify", "posd")
    with report.check(PART, "the way back that it names works: remove, install the older one"):
        machine.run("apt-get", "remove", "-y", "posd")
        machine.run("dpkg", "-i", f"/root/{later[0]}")
        assert "9.9.0" in machine.out("posd", "--version")
        assert shop.result(shop.charge(machine)) == "approved"


def _removed(report: Report, machine: Machine, package: Path) -> None:
    with report.check(PART, "removed: it is gone, configuration and payments stay; installed again, it knows them"):
        payments = shop.payments(machine)
        machine.run("apt-get", "remove", "-y", "posd")
        left = machine.run("find", "/proc", "-maxdepth", "1", "-user", "posd", check=False).stdout.split()
        assert not left, f"processes of posd's user are left: {left}"
        for path in ("/opt/posd", "/usr/bin/posd", "/run/posd"):
            assert not (machine.root / path.lstrip("/")).exists(), path
        assert machine.run("test", "-e", "/var/lib/posd/posd.db").returncode == 0
        assert machine.run("test", "-e", shop.CONFIG).returncode == 0
        machine.run("dpkg", "-i", f"/root/{package.name}")
        assert shop.payments(machine) == payments
        assert shop.result(shop.charge(machine)) == "approved"
    with report.check(PART, "purged: nothing is left but the record of payments, and it says where") as check:
        said = machine.out("apt-get", "purge", "-y", "posd")
        found = re.search(r"kept in (/var/backups/posd-\w+)", said)
        assert found, said
        check.note(found[0])
        assert machine.out("stat", "-c", "%U %a", found[1]) == "root 700"
        assert machine.run("test", "-s", f"{found[1]}/posd.db").returncode == 0
        where = ("etc", "opt", "usr", "var", "run", "lib")
        places = [f"/{name}" for name in where if (machine.root / name).exists()]  # /opt was there for posd alone
        left = machine.out("find", *places, "-xdev", "-iname", "*posd*").splitlines()
        left = [path for path in left if not path.startswith((found[1], "/usr/share/doc-base"))]
        check.note(f"left: {left}")
        assert not left
        until(
            lambda: not machine.out("systemctl", "list-units", "--all", "--plain", "--no-legend", "posd*"),
            "no unit",
            30,
        )


def _former(report: Report, package: Path, scratch: Path) -> None:
    """Upgrade the package of the version before, in which the configuration was a conffile, and which was changed."""
    machine = Machine(scratch / "former-machine", f"posd-former-{os.getpid()}", report.suite)
    try:
        with report.check(PART, "the package of the version before is installed, configured, and charges"):
            former = packages.former(scratch)
            machine.make()
            for file in (former, package):
                machine.put(file, "/root/")
            machine.run("apt-get", "update", "-q")
            install = ("apt-get", "install", "-y", "--no-install-recommends")
            machine.run(*install, f"/root/{former.name}", seconds=600)
            # Booted it has no network; what the upgrade needs besides (python3 for python3.11) is fetched before.
            machine.run(*install, "--download-only", f"/root/{package.name}", seconds=600)
            machine.boot()
            text = (machine.root / "etc/posd/config.toml").read_text()
            machine.write(shop.CONFIG, text[: text.index("# Your terminals:")] + shop.TERMINAL)
            shop.open_shop(machine)
            machine.run("systemctl", "restart", "posd")
            assert shop.result(shop.charge(machine)) == "approved"
        if report.checks[-1].result != "passed":
            return
        with report.check(
            PART, "upgraded from it unattended, over a changed configuration: no question, it runs"
        ) as check:
            kept = machine.out("cat", shop.CONFIG)
            with shop.paying(machine, "python3.11") as told:
                check.note(machine.out(*install, f"/root/{package.name}"))
            check.note(str(told))
            assert told["refused"] == 0
            assert set(told["outcomes"]) == {"approved"}
            assert machine.out("cat", shop.CONFIG) == kept
            assert machine.out("sh", "-c", "ls /etc/posd") == "config.toml"
            assert machine.out("posd", "--version")
            assert not machine.out("sh", "-c", "find /opt/posd -xtype l")
            assert _states(machine) == ("active", "active")
            assert shop.result(shop.charge(machine)) == "approved"
            assert not machine.out("dpkg", "--verify", "posd").replace("??5?????? c /etc/posd/config.toml", "").strip()
            _compiled(machine)
        with report.check(PART, "after it the socket follows the service: disabled, it stays so over the next boot"):
            machine.run("systemctl", "disable", "--now", "posd")
            machine.power_off()
            machine.boot()
            assert _states(machine) == ("inactive", "inactive")
            machine.run("systemctl", "enable", "--now", "posd")
            assert _states(machine) == ("active", "active")
        with report.check(PART, "purged after it, the configuration is gone too"):
            machine.run("apt-get", "purge", "-y", "posd")
            assert not (machine.root / "etc/posd").exists()
    finally:
        machine.close()


def _compiled(machine: Machine) -> None:
    """All of posd's modules are compiled, by the Python that runs it."""
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
