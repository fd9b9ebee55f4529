"""docs/guides/operations.md: the pages about a database or a machine in trouble, their commands as they stand.

For each page a machine is brought into the state that the page is about, and a person of the group posd-admin, who may
use sudo, types the page's commands on a terminal. What the page says is seen is looked for in what they show.
"""

import json
import os
import pty
import re
import select
import subprocess
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.system import packages, shop
from tests.system.guide_pages import EDITOR, READER, SUDOERS, Page, text
from tests.system.machine import Machine, need, until
from tests.system.report import Report

PART = "machine"
#: Seconds after which a command on the screen hangs.
HANGS = 45
HERE = "10.99.0.1"
#: When this is shown -> that is typed, or happens in the shop.
Answers = tuple[tuple[str, str | Callable[[], object]], ...]


def run(report: Report, scratch: Path) -> None:
    """Run the part: a page is a check."""
    machine = Machine(scratch / f"machine-{report.suite}", f"posd-machine-{os.getpid()}", report.suite)
    try:
        with report.check(PART, "a machine is laid out, and its terminals charge") as check:
            need("mmdebstrap", "mmdebstrap")
            need("systemd-nspawn", "systemd-container")
            check.note(lay_out(machine, packages.given(scratch)))
        if report.checks[-1].result != "passed":
            return
        for look in LOOKS:
            with report.check(PART, str(look.__doc__)) as check:
                try:
                    look(Seen(str(look.__doc__), machine, check))
                finally:
                    shop_again(machine)
    finally:
        machine.close()


class Seen(Page):
    """A page that is followed on a screen, where posd asks and a person answers."""

    def screen(self, command: str, *codes: int, answers: Answers = (), edit: str = "", **given: str) -> str:
        """Type a command of the page on a terminal; return what is shown. `edit` is what the editor does, for sed."""
        assert command in self._all, f"{command!r} does not stand on the page {self.heading!r}"
        if command in self.left:
            self.left.remove(command)
        words = command
        for name, value in given.items():
            assert name in words, f"{command!r} has no {name}"
            words = words.replace(name, value)
        self.machine.write("/root/edit.sed", edit)
        code, shown = typed(self.machine, words, answers)
        self.check.note(f"$ {words}\n{shown}" + (f"\n[exit code {code}]" if code else ""))
        assert code in (codes or (0,)), f"exit code {code} of {words}\n{shown}"
        return shown

    def state(self, words: str) -> None:
        """Note what happens in the shop."""
        self.check.note(f"-- {words}")

    def says(self, words: str, shown: str) -> None:
        """What the page says is seen is seen."""
        assert words in " ".join(text(self.heading).split()), f"the page {self.heading!r} does not say {words!r}"
        assert words in " ".join(shown.split()), f"not shown: {words!r}\n{shown}"


def typed(machine: Machine, words: str, answers: Answers = ()) -> tuple[int, str]:
    """Type words on a screen of 100 columns; return the exit code and what was shown."""
    here, there = pty.openpty()
    with subprocess.Popen(
        [
            *machine.inside(COLUMNS="100", TERM="dumb"),
            "runuser",
            "-u",
            READER,
            "--",
            "sh",
            "-c",
            f"cd ~{READER} && {words}",
        ],
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
    ) as process:
        os.close(there)
        shown, looked, left, ends = b"", 0, list(answers), time.monotonic() + HANGS
        try:
            while select.select([here], [], [], max(0, ends - time.monotonic()))[0]:
                try:
                    shown += os.read(here, 65536)
                except OSError:  # the command has ended
                    break
                while left and (at := shown.find(left[0][0].encode(), looked)) >= 0:
                    looked, answer = at + 1, left.pop(0)[1]
                    if isinstance(answer, str):
                        os.write(here, f"{answer}\n".encode())
                    else:
                        answer()
            else:
                process.kill()
        except BaseException:
            process.kill()
            raise
        finally:
            os.close(here)
    said = shown.decode(errors="replace").replace("\r\n", "\n").strip()
    assert process.returncode >= 0, f"{words!r} hangs:\n{said}"
    assert not left, f"{words!r} never showed {left[0][0]!r}:\n{said}"
    return process.returncode, re.sub(r"\x1b\[[0-9;]*m", "", said)


def lay_out(machine: Machine, package: Path) -> str:
    """Lay out a machine with posd, a till, a person of the shop's IT, and two terminals."""
    machine.make()
    machine.put(package, "/root/")
    machine.run("apt-get", "update", "-q")
    install = ("apt-get", "install", "-y", "--no-install-recommends")
    machine.run(*install, f"/root/{package.name}", "sudo", "openssl", seconds=600)
    machine.write("/usr/local/bin/editor", EDITOR)
    machine.run("chmod", "+x", "/usr/local/bin/editor")
    machine.write(f"/etc/sudoers.d/{READER}", SUDOERS)
    machine.write("/etc/hosts", f"127.0.0.1 localhost {(machine.root / 'etc/hostname').read_text()}")
    machine.run("useradd", "--groups", "posd-till", "till")
    machine.run("useradd", "--create-home", "--groups", "posd-admin", READER)
    machine.boot()
    network(machine)
    certificate(machine, "SN-0002")
    terminal(machine, "SN-0001", 11)
    terminal(machine, "SN-0002", 12, scheme="https")
    configure(machine, SHOP + section("SN-0002", 12, pin(machine, "SN-0002"), scheme="https"))
    machine.run("systemctl", "restart", "posd")
    until(lambda: HERE in machine.run("posd", "tls", "status", check=False).stdout, "the certificate names it", 120)
    paid(machine, "SN-0001")
    paid(machine, "SN-0002")
    return package.name


def section(serial: str, number: int, *lines: str, scheme: str = "http") -> str:
    """Return the configuration's section for a terminal at 10.99.0.NUMBER."""
    address = f'base_url = "{scheme}://10.99.0.{number}:{PORTS[scheme]}"'
    return "\n".join(("[[terminals]]", f'serial = "{serial}"', address, *lines, ""))


PORTS = {"http": 6868, "https": 6869}
SHOP = section("SN-0001", 11)


def pin(machine: Machine, serial: str) -> str:
    """Return the line of the configuration by which the certificate of a terminal is pinned."""
    said = machine.out("openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", f"/var/lib/sim/{serial}.crt")
    return f'fingerprint_sha256 = "{said.split("=")[1]}"'


def certificate(machine: Machine, name: str, days: str = "") -> tuple[str, ...]:
    """Make a certificate that a terminal signs for itself; return the simulator's options for it."""
    file = f"/var/lib/sim/{name}"
    machine.run("mkdir", "-p", "/var/lib/sim")
    ends = (
        ["-not_before", "20250101000000Z", "-not_after", "20260101000000Z"] if days == "expired" else ["-days", "398"]
    )
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-noenc", *ends]
    made += [] if "." in name else ["-addext", "subjectAltName=IP:10.99.0.12"]
    machine.run(*made, "-subj", f"/CN={name}", "-keyout", f"{file}.key", "-out", f"{file}.crt")
    return "--cert", f"{file}.crt", "--key", f"{file}.key"


def configure(machine: Machine, terminals: str) -> None:
    """Write terminals into the configuration, in place of those that stand there."""
    kept = (machine.root / shop.CONFIG.lstrip("/")).read_text().split("\n[[terminals]]")[0]
    machine.write(shop.CONFIG, f"{kept.rstrip()}\n\n{terminals}")


def network(machine: Machine) -> None:
    """Bring up the shop's network, as after each boot: a bridge, on which each terminal is a host of its own."""
    for line in ("ip link add shop0 type bridge", "ip link set shop0 up", f"ip addr add {HERE}/24 dev shop0"):
        machine.run(*line.split())


def plug(machine: Machine, number: int) -> str:
    """Make the host 10.99.0.NUMBER on the shop's network where it is not there; return its network namespace."""
    name = f"t{number}"
    if name not in machine.out("ip", "netns").split():
        for line in (
            f"ip netns add {name}",
            f"ip link add {name} type veth peer name eth0 netns {name}",
            f"ip link set {name} master shop0 addrgenmode none up",
            f"ip -n {name} addr add 10.99.0.{number}/24 dev eth0",
            f"ip -n {name} link set eth0 up",
            f"ip -n {name} link set lo up",
        ):
            machine.run(*line.split())
    return name


def terminal(
    machine: Machine,
    serial: str,
    number: int,
    *options: str,
    scheme: str = "http",
    state: str = "",
    trust: str = "/var/lib/posd/tls/ca.crt",
) -> None:
    """Start a simulated terminal at 10.99.0.NUMBER, in place of the one that runs there."""
    name = plug(machine, number)
    switch_off(machine, number)
    words = ["ip", "netns", "exec", name, "posd", "simulate", "--serial", serial, "--speed", "20"]
    words += ["--listen", f"10.99.0.{number}:{PORTS[scheme]}", "--state", f"/var/lib/sim/{state or serial}"]
    words += ["--trust", trust, "--control", "127.0.0.1:6870", *options]
    words += ["--http"] if scheme == "http" else []
    if scheme == "https" and "--cert" not in options:
        words += ["--cert", f"/var/lib/sim/{serial}.crt", "--key", f"/var/lib/sim/{serial}.key"]
    machine.run("mkdir", "-p", "/var/lib/sim")
    machine.run("systemd-run", "--quiet", "--collect", f"--unit=terminal-{number}", *words)
    listens = ("ip", "netns", "exec", name, "ss", "-Hltn", f"sport = {PORTS[scheme]}")
    until(lambda: bool(machine.out(*listens)), "the terminal listens", 60)


def switch_off(machine: Machine, number: int) -> None:
    """Switch the terminal at 10.99.0.NUMBER off."""
    machine.run("systemctl", "stop", f"terminal-{number}", check=False)


def hand(machine: Machine, serial: str, number: int, deed: str, body: str = "{}") -> None:
    """Do something at a terminal, as a customer does, or a person who carries it away."""
    script = (
        "import sys, urllib.request as r; "
        "r.urlopen(r.Request(sys.argv[1], sys.argv[2].encode(), {'Content-Type': 'application/json'}))"
    )
    url = f"http://127.0.0.1:6870/terminals/{serial}/{deed}"
    words = ("ip", "netns", "exec", f"t{number}", "python3", "-c", script, url, body)
    until(lambda: not machine.run(*words, check=False).returncode, f"{deed} can be done", 30)


def pay(machine: Machine, serial: str, *options: str, amount: str = "12.50") -> dict[str, Any]:
    """Pay as a till does; return the transaction."""
    return shop.charge(machine, amount, "--terminal", serial, *options)


def paid(machine: Machine, serial: str) -> None:
    """A payment on that terminal is approved."""
    document = pay(machine, serial)
    assert shop.result(document) == "approved", document


def till(page: Seen, serial: str) -> str:
    """A till cannot pay on that terminal; return what its cashier is shown."""
    words = ("posd", "charge", "12.50", "--terminal", serial)
    done = page.machine.run(*words, user="till", check=False)
    shown = (done.stdout + done.stderr).rstrip()
    page.check.note(f"the till's user$ {' '.join(words)}\n{shown}\n[exit code {done.returncode}]")
    assert done.returncode in (1, 3), done
    return shown


def shop_again(machine: Machine) -> None:
    """Bring the shop back to how it was laid out; it charges."""
    settle(machine)
    terminal(machine, "SN-0001", 11)
    terminal(machine, "SN-0002", 12, scheme="https")
    configure(machine, SHOP + section("SN-0002", 12, pin(machine, "SN-0002"), scheme="https"))
    machine.run("systemctl", "reload-or-restart", "posd")
    until(lambda: machine.show("posd", "ActiveState")["ActiveState"] == "active", "posd is up")
    paid(machine, "SN-0001")
    paid(machine, "SN-0002")


def settle(machine: Machine) -> None:
    """Settle what is open, as a person does who has looked."""
    for one in shop.payments(machine):
        if one["phase"] != "final":
            words = ("--yes", "--note", "looked at")
            machine.run("posd", "resolve", one["client_transaction_id"], "not_started", "--yes", *words)


def ended(machine: Machine, identity: str) -> str:
    """Return how a payment ended; its phase where it has not."""
    return shop.result(json.loads(machine.out("posd", "show", identity, "--json")))


#: Announces a serial under an instance name of its own, as any device can: name, serial, address, port.
ANNOUNCES = """
import signal, sys
from zeroconf import ServiceInfo, Zeroconf
name, serial, address, port = sys.argv[1:]
service = "_card-terminal._tcp.local."
info = ServiceInfo(service, f"{name}.{service}", port=int(port), properties={"serial": serial},
                   server=f"{name}.local.", parsed_addresses=[address])
Zeroconf(interfaces=[address]).register_service(info)
signal.pause()
"""


def announce(machine: Machine, serial: str, number: int, port: int) -> None:
    """Let the device at 10.99.0.NUMBER announce that serial, as long as it is switched on."""
    name = plug(machine, number)
    unit = f"--unit=announces-{number}"
    bound = ("-p", f"BindsTo=terminal-{number}.service", "-p", f"After=terminal-{number}.service")
    words = (
        "/opt/posd/bin/python3",
        "-IB",
        "-c",
        ANNOUNCES,
        f"device-{number}",
        serial,
        f"10.99.0.{number}",
        f"{port}",
    )
    machine.run("systemd-run", "--quiet", "--collect", unit, *bound, "ip", "netns", "exec", name, *words)


def two(page: Seen) -> None:
    """Two devices claim to be one terminal"""
    machine = page.machine
    page.state("SN-0005 is new, without base_url and certificate; it announces itself, and then another device does")
    configure(machine, '[[terminals]]\nserial = "SN-0005"\nscheme = "http"\n')
    terminal(machine, "SN-0005", 17, "--mdns-interface", "10.99.0.17")
    machine.run("systemctl", "reload", "posd")
    until(lambda: "10.99.0.17:6868\tmdns" in machine.out("posd", "terminals"), "it is found", 60)
    paid(machine, "SN-0005")
    terminal(machine, "SN-0005", 17, "--mdns-interface", "10.99.0.17", "--scenario", "by-hand")
    until(lambda: "10.99.0.17:6868\tmdns" in machine.out("posd", "terminals"), "it is found again", 60)
    identity = pay(machine, "SN-0005", "--no-wait")["client_transaction_id"]
    terminal(machine, "SN-0005", 15, state="claims")
    announce(machine, "SN-0005", 15, PORTS["http"])
    took = until(lambda: "identity" in verdict(machine), "it is seen", 60)
    page.check.note(f"seen after {took:.1f} s")
    page.check.note(machine.run("posd", "status", check=False).stdout)
    shown = machine.out("posd", "show", identity)
    page.check.note(shown)
    page.says("identity_conflict", shown)
    page.state("the payment that was open goes on")
    for deed in ("present-card", "approve"):
        hand(machine, "SN-0005", 17, deed)
    until(lambda: ended(machine, identity) == "approved", "its events count", 30)
    page.says("identity_conflict", till(page, "SN-0005"))
    shown = page.screen("posd terminals identity SN-0001", 1, **{"SN-0001": "SN-0005"})
    for address in ("10.99.0.17", "10.99.0.15"):
        assert address in shown, shown
    page.says("and none of them can prove that it is", shown)
    says = "posd terminals identity SN-0001 --base-url http://192.168.1.50:6868"
    says += ' --operator Ana --note "compared with its display"'
    page.screen(says, **{"SN-0001": "SN-0005", "192.168.1.50": "10.99.0.17"})
    terminal(machine, "SN-0005", 17, "--mdns-interface", "10.99.0.17")
    paid(machine, "SN-0005")
    machine.run("systemctl", "restart", "posd")
    up(machine)
    until(
        lambda: "10.99.0.15" in machine.run("posd", "terminals", "identity", "SN-0005", check=False).stdout, "heard", 60
    )
    paid(machine, "SN-0005")
    for number in (15, 17):
        switch_off(machine, number)
    configure(machine, section("SN-0002", 12, scheme="https"))
    machine.run("systemctl", "restart", "posd")
    page.screen("posd terminals pin SERIAL", answers=(("[y/N]", "y"),), SERIAL="SN-0002")
    page.end()


def broken(page: Seen, words: str, said: str, code: int) -> None:
    """Break it while posd is stopped: it does not start, and says why."""
    machine = page.machine
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", words)
    machine.run("systemctl", "start", "posd", check=False)
    until(lambda: machine.show("posd", "ExecMainStatus")["ExecMainStatus"] == str(code), "posd has ended", 30)
    log = machine.out("journalctl", "-u", "posd", "-n", "20", "-o", "cat")
    page.check.note("\n".join(line for line in log.splitlines() if "cannot_start" in line or "posd:" in line)[-800:])
    page.says(said, log)
    page.check.note(machine.run("posd", "doctor", check=False).stdout.split("\n\n\n")[0])


def up(machine: Machine) -> None:
    """Start posd; it is ready."""
    # Refused where systemd began a start before it was mended; the next one comes by itself.
    machine.run("systemctl", "start", "posd", check=False)
    until(lambda: not machine.run("posd", "list", "--open", check=False).returncode, "posd answers", 60)


def damaged(page: Seen) -> None:
    """The database is damaged"""
    machine = page.machine
    machine.run("systemctl", "start", "posd-backup")
    page.check.note(machine.out("ls", "-l", "/var/lib/posd/backups"))
    paid(machine, "SN-0001")
    known = [one["client_transaction_id"] for one in shop.payments(machine)]
    page.state("pages in the middle of the database are overwritten while posd is stopped")
    destroy(machine)
    machine.run("systemctl", "start", "posd", check=False)
    log = until_said(machine, "is damaged")
    page.check.note(log)
    page.says("nothing was changed", log)
    page.screen("sudo systemctl stop posd")
    page.screen("sudo -u posd posd verify", 2)
    newest = page.screen("sudo ls -t /var/lib/posd/backups").split()[0]
    page.screen("sudo -u posd posd restore /var/lib/posd/backups/BACKUP", answers=(("[y/N]", "y"),), BACKUP=newest)
    page.screen("sudo systemctl start posd")
    until(lambda: not machine.run("posd", "list", "--open", check=False).returncode, "posd answers", 60)
    page.check.note(machine.run("posd", "status", check=False).stdout)
    page.screen("posd restore --seen", 0, 1, answers=(("What was found", "compared with the bank"),))
    left = set(known) - {one["client_transaction_id"] for one in shop.payments(machine)}
    assert not left, f"{len(left)} of {len(known)} payments are not known any more"
    paid(machine, "SN-0001")
    page.state("the same, and there is no backup")
    destroy(machine)
    page.screen("sudo -u posd posd restore --without-backup", answers=(("[y/N]", "y"),))
    up(machine)
    page.check.note(machine.run("posd", "status", check=False).stdout)
    machine.run("posd", "restore", "--seen", "--note", "compared", check=False)
    page.end()


def destroy(machine: Machine) -> None:
    """Overwrite the middle of the database while posd is stopped."""
    machine.run("systemctl", "stop", "posd")
    file = machine.root / "var/lib/posd/posd.db"
    data = bytearray(file.read_bytes())
    for at in range(4096 * 2, len(data), 4096 * 2):
        data[at : at + 512] = b"\xff" * 512
    file.write_bytes(data)


def until_said(machine: Machine, words: str) -> str:
    """Return the log line in which posd says why it does not start."""

    def lines() -> list[str]:
        log = machine.out("journalctl", "-u", "posd", "-n", "30", "-o", "cat").splitlines()
        return [line for line in log if words in line]

    until(lambda: bool(lines()), f"the log says {words!r}", 60)
    return lines()[-1]


def full(page: Seen) -> None:
    """The disk is full"""
    machine = page.machine
    page.state("/var/lib/posd is a disk of its own, of 100 MiB; a file fills it")
    machine.run("systemctl", "stop", "posd")
    machine.run(
        "sh",
        "-c",
        "mkdir /var/lib/kept && cp -a /var/lib/posd/. /var/lib/kept"
        " && mount -t tmpfs -o size=100m,mode=0700,uid=posd,gid=posd posd /var/lib/posd"
        " && cp -a /var/lib/kept/. /var/lib/posd",
    )
    up(machine)
    paid(machine, "SN-0001")
    machine.run("sh", "-c", "dd if=/dev/zero of=/var/lib/posd/export.tar bs=64k 2>/dev/null; true", user="posd")
    page.says("storage_unavailable", till(page, "SN-0001"))
    shown = page.screen("posd status", 1)
    page.says("posd: PAYMENTS CANNOT BE MADE: storage", shown)
    page.says("the disk is nearly full: new payments are refused", shown)
    assert "100%" in page.screen("df -h /var/lib/posd")
    page.screen("sudo journalctl --disk-usage")
    page.screen("sudo journalctl --vacuum-size=200M")
    page.state("the file is removed: posd is well again by itself")
    machine.run("rm", "/var/lib/posd/export.tar")
    until(lambda: "storage" not in verdict(machine), "it is well again", 60)
    page.screen("posd list --open")
    page.screen("posd status", 0, 1)
    paid(machine, "SN-0001")
    page.screen("posd reconcile ID", ID=shop.payments(machine)[0]["client_transaction_id"])
    assert "There is nothing to remove." in page.screen("posd prune")
    machine.run("systemctl", "stop", "posd")
    machine.run(
        "sh",
        "-c",
        "cp -a /var/lib/posd/. /var/lib/kept && umount /var/lib/posd && rm -rf /var/lib/posd/*"
        " && cp -a /var/lib/kept/. /var/lib/posd && rm -r /var/lib/kept",
    )
    up(machine)
    reader = ("sudo fuser -v /var/lib/posd/posd.db-wal", "posd doctor", "sudo kill PROCESS")
    page.end(dict.fromkeys(reader, "no program reads the database here"))


def power_cut(page: Seen) -> None:
    """The power was cut"""
    machine = page.machine
    page.state("in the middle of a payment on each terminal the power is cut, of the terminals too")
    for number, serial in ((11, "SN-0001"), (12, "SN-0002")):
        terminal(machine, serial, number, "--scenario", "by-hand", scheme="http" if number == 11 else "https")
        pay(machine, serial, "--no-wait")
    hand(machine, "SN-0001", 11, "present-card")
    machine.cut_power()
    machine.boot()
    network(machine)
    terminal(machine, "SN-0001", 11)
    terminal(machine, "SN-0002", 12, scheme="https")
    up(machine)
    page.says("payment.taken_over", machine.out("journalctl", "-u", "posd", "-b", "-o", "cat"))
    page.screen("posd status", 0, 1)
    page.screen("posd list --open")
    page.screen("posd list --attention", 0, 1)
    for one in shop.payments(machine):
        if one["phase"] != "final":
            page.screen(
                "posd resolve ID RESULT",
                answers=(
                    ("Why (", "the bank has none of it"),
                    ("[y/N]", "y"),
                ),
                ID=one["client_transaction_id"],
                RESULT="not_started",
            )
    assert not [one for one in shop.payments(machine) if one["phase"] != "final"]
    page.end()


def network_away(page: Seen) -> None:
    """The network was away"""
    machine = page.machine
    page.state("the network goes away in the middle of two payments")
    for number, serial in ((11, "SN-0001"), (12, "SN-0002")):
        terminal(machine, serial, number, "--scenario", "by-hand", scheme="http" if number == 11 else "https")
        pay(machine, serial, "--no-wait")
    machine.run("ip", "link", "set", "shop0", "down")
    hand(machine, "SN-0001", 11, "present-card")
    hand(machine, "SN-0001", 11, "approve")
    page.screen("posd terminals", 0, 1)
    page.screen("posd status", 0, 1)
    machine.run("ip", "link", "set", "shop0", "up")
    page.screen("posd list --open")
    one, other = (
        next(p["client_transaction_id"] for p in shop.payments(machine) if p["terminal"] == serial)
        for serial in ("SN-0001", "SN-0002")
    )
    page.screen("posd reconcile ID", 0, 1, 4, ID=one)
    until(lambda: ended(machine, one) == "approved", "the terminal tells it, or a search finds it", 120)
    page.state("SN-0002 was switched off, and has forgotten its payment")
    terminal(machine, "SN-0002", 12, scheme="https")
    page.screen(
        "posd resolve ID RESULT",
        answers=(
            ("Why (", "the bank has none of it"),
            ("[y/N]", "y"),
        ),
        ID=other,
        RESULT="not_started",
    )
    page.screen("posd report")
    page.end()


def was_restored(page: Seen) -> None:
    """The database was restored"""
    machine = page.machine
    backup(machine)
    paid(machine, "SN-0001")
    page.state("the database and its log are lost, and a backup is restored")
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", "rm /var/lib/posd/posd.db /var/lib/posd/posd.db-*; true")
    page.check.note(machine.out("posd", "restore", "--yes", BACKUP, user="posd"))
    up(machine)
    shown = page.screen("posd status", 1)
    page.says("! restore", shown)
    page.says("store.restored", machine.out("journalctl", "-u", "posd", "-o", "cat", "-n", "30"))
    page.says("restore_unseen", till(page, "SN-0001"))
    page.screen("posd list --attention", 0, 1)
    slip = 'posd resolve ID approved --amount 11.20 --terminal SN-0001 --operator NAME --note "slip 000123"'
    lost = str(uuid.uuid4())
    page.screen(slip, answers=(("[y/N]", "y"),), ID=lost, NAME="Ana")
    assert shop.result(shop.charge(machine, "11.20", "--terminal", "SN-0001", "--id", lost)) == "approved"
    page.screen('posd restore --seen --operator NAME --note "compared with the bank until 18:40"', NAME="Ana")
    page.end()


def verdict(machine: Machine) -> str:
    """Return the first line of `posd status`."""
    return machine.run("posd", "status", check=False).stdout.split("\n")[0]


BACKUP = "/var/lib/posd/backups/by-hand.db"


def backup(machine: Machine) -> None:
    """Make a backup, in place of the one before."""
    machine.run("rm", "-f", BACKUP)
    machine.run("posd", "backup", BACKUP, user="posd")


def gone_back(page: Seen) -> None:
    """The database has gone back"""
    machine = page.machine
    page.state("an older copy of posd.db is put in its place by hand")
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", "cp -a /var/lib/posd/posd.db /var/lib/posd/older.db")
    up(machine)
    paid(machine, "SN-0001")
    machine.run("systemctl", "stop", "posd")
    machine.run("sh", "-c", "mv /var/lib/posd/older.db /var/lib/posd/posd.db; rm -f /var/lib/posd/posd.db-*")
    up(machine)
    shown = page.screen("posd status", 1)
    page.says("database has gone back in time", shown)
    page.says("store.gone_back", machine.out("journalctl", "-u", "posd", "-o", "cat", "-n", "30"))
    page.says("restore_unseen", till(page, "SN-0001"))
    page.screen(
        "posd restore --seen --operator NAME", answers=(("What was found", "compared with the bank"),), NAME="Ana"
    )
    page.end({"posd restore": "with a backup it is typed on the other pages of the database"})


def file_moved(page: Seen) -> None:
    """The database file was moved"""
    machine = page.machine
    backup(machine)
    page.state("posd.db is moved away while posd runs")
    machine.run("mv", "/var/lib/posd/posd.db", "/var/lib/posd/elsewhere.db")
    until_said(machine, "store.file_moved")
    page.says("PAYMENTS CANNOT BE MADE: storage", page.screen("posd status", 1))
    page.check.note(machine.run("posd", "charge", "12.50", "--terminal", "SN-0001", user="till", check=False).stderr)
    assert "elsewhere.db" in page.screen("sudo ls -l /proc/$(systemctl show -P MainPID posd)/fd")
    page.state("the same file is put back: posd goes on by itself")
    machine.run("mv", "/var/lib/posd/elsewhere.db", "/var/lib/posd/posd.db")
    until(lambda: "storage" not in verdict(machine), "it is well again", 60)
    paid(machine, "SN-0001")
    page.state("it is deleted, and cannot be had back")
    machine.run("rm", "/var/lib/posd/posd.db")
    until(lambda: "storage" in verdict(machine), "it is seen", 60)
    machine.run("systemctl", "stop", "posd")
    page.screen("sudo -u posd posd restore BACKUP", answers=(("[y/N]", "y"),), BACKUP=BACKUP)
    up(machine)
    page.check.note(machine.run("posd", "status", check=False).stdout)
    machine.run("posd", "restore", "--seen", "--note", "compared", check=False)
    page.end({"posd backup": "it is typed before, to have the backup"})


def key_missing(page: Seen) -> None:
    """The callback key is missing"""
    machine = page.machine
    backup(machine)
    missing = "rm /var/lib/posd/callback.key"
    broken(page, missing, "the callback key /var/lib/posd/callback.key is not there", 1)
    page.screen("sudo systemctl stop posd")
    page.screen("sudo -u posd posd restore BACKUP", answers=(("[y/N]", "y"),), BACKUP=BACKUP)
    page.screen("sudo systemctl start posd")
    up(machine)
    paid(machine, "SN-0001")
    page.state("the key is lost again, and there is no backup")
    broken(page, missing, "the callback key /var/lib/posd/callback.key is not there", 1)
    page.screen("sudo systemctl stop posd")
    page.screen("sudo -u posd posd restore --new-callback-key --operator NAME", answers=(("[y/N]", "y"),), NAME="Ana")
    page.screen("sudo systemctl start posd")
    up(machine)
    page.screen("posd list --open")
    machine.run("posd", "restore", "--seen", "--note", "compared", check=False)
    page.end()


LOOKS: tuple[Callable[[Seen], None], ...] = (
    two,
    damaged,
    full,
    power_cut,
    network_away,
    was_restored,
    gone_back,
    file_moved,
    key_missing,
)
