"""A morning on which the power comes back after a week, with many faults. A person repairs them by `posd status` and
its advice.

The clock is a year behind, this machine has another address, posd's certificate has expired, the disk is full, and one
terminal was swapped. When the power went, one payment was waiting for its card and one was in doubt.
"""

import ipaddress
import json
import os
import re
import shutil
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from tests.system import packages, shop
from tests.system.guide_pages import typed
from tests.system.machine import Machine, host, need, until
from tests.system.report import Report, Skipped

PART = "morning"
#: The person: a user in the group posd-admin who may use sudo.
PERSON = "ana"
BEFORE, AFTER = "10.99.0.1", "10.99.0.7"
STATE = "/var/lib/posd"
STRAY = f"{STATE}/old-export.tar"
#: Seconds for which the machine is off, and by which its clock is behind afterwards.
WEEK, BEHIND = 7 * 86_400, 365 * 86_400
#: Each terminal: its serial, its address, its protocol and its port.
TILL_1, TILL_2 = ("SN-0001", "10.99.0.11", "https", 6869), ("SN-0002", "10.99.0.12", "http", 6868)
#: The terminal in place of the second one after the week.
SWAPPED = ("SN-0099", "10.99.0.12", "http", 6868)
#: Amounts that choose the simulator's scenario: a payment that waits for a card; and one whose reply and events are
#: lost, so that only a search finds it.
WAITS, LOST = "9000.10", "9000.28"
LIBRARY = "/usr/local/lib/libfaketimeMT.so.1"
#: Files with the time of the machine's clock and the right time, which the terminals have.
CLOCK, RIGHT = "/etc/clock/machine", "/etc/clock/right"
#: Programs that read the machine's clock: the package's services, and a person's commands.
UNITS = ("posd", "posd-backup", "posd-tls-init")
COMMANDS = ("posd", "date")
TIMEDATECTL = f"""#!/bin/sh
[ "$1" = set-time ] || exec date "+%A %Y-%m-%d %H:%M:%S %Z"
[ "$(id -u)" = 0 ] || {{ echo "Failed to set time: Access denied" >&2; exit 1; }}
printf '%+d\\n' $(( $(/usr/bin/date -d "$2" +%s) - $(/usr/bin/date +%s) )) > {CLOCK}
"""
#: An editor that runs the sed script in a file.
EDITOR = '#!/bin/sh\nfor file; do :; done\nexec sed -i -E -f /root/edit.sed "$file"\n'


def _faked(file: str) -> dict[str, str]:
    return {
        "LD_PRELOAD": LIBRARY,
        "FAKETIME_TIMESTAMP_FILE": file,
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
    }


@dataclass
class Scene:
    """The shop from the evening before to the morning, and the person's session on the machine."""

    scratch: Path
    name: str
    suite: str
    session: list[str] = field(default_factory=list)
    #: Kind of payment -> its id.
    ids: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.machine = Machine(self.scratch / self.name, self.name, self.suite)

    @property
    def _disk(self) -> Path:
        return self.machine.root / STATE.lstrip("/")

    def close(self) -> None:
        """Power it off and leave nothing behind."""
        if self.machine.booted:
            self.machine.power_off()
        if self._disk.is_mount():
            host("umount", str(self._disk))
        self.machine.close()

    def install(self, package: Path) -> None:
        """Install posd on a machine whose clock can be set, with its state on a disk of its own; boot it."""
        machine = self.machine
        machine.make()
        machine.put(package, "/root/")
        machine.run("apt-get", "update", "-q")
        needed = ("sudo", "libfaketime", f"/root/{package.name}")
        machine.run("apt-get", "install", "-y", "--no-install-recommends", *needed, seconds=600)
        (library,) = machine.root.glob("usr/lib/*/faketime/libfaketimeMT.so.1")
        shutil.copy(library, machine.root / LIBRARY.lstrip("/"))
        for file in (CLOCK, RIGHT):
            machine.write(file, "+0\n")
        for name, command, file in (*((c, c, CLOCK) for c in COMMANDS), ("terminal", "posd", RIGHT)):
            exports = " ".join(f"{key}={value}" for key, value in _faked(file).items())
            self._script(name, f'#!/bin/sh\nexport {exports}\nexec /usr/bin/{command} "$@"\n')
        self._script("timedatectl", TIMEDATECTL)
        self._script("editor", EDITOR)
        faked = "".join(f"Environment={key}={value}\n" for key, value in _faked(CLOCK).items())
        # The kernel, whose clock is not changed here, sets the times of files.
        newest = f"{STATE}/backups/*.db*; do touch -d $$(/usr/local/bin/date +%%Y-%%m-%%dT%%H:%%M:%%S) $$file; done"
        after = f"[Service]\nExecStartPost=/bin/sh -c 'for file in {newest}'\n"
        machine.write("/etc/systemd/system/posd-backup.service.d/file.conf", after)
        for unit in UNITS:
            machine.write(f"/etc/systemd/system/{unit}.service.d/clock.conf", f"[Service]\n{faked}")
        image = machine.scratch / "disk.img"
        host("truncate", "--size=1G", str(image))
        host("mkfs.ext4", "-q", "-m", "0", str(image))
        host("mount", "-o", "loop", str(image), str(self._disk))
        shutil.rmtree(self._disk / "lost+found")
        owner = ":".join(machine.out("id", flag, "posd") for flag in ("-u", "-g"))
        host("chown", owner, str(self._disk))
        host("chmod", "700", str(self._disk))
        machine.write("/etc/hosts", f"127.0.0.1 localhost {machine.out('cat', '/etc/hostname')}\n")
        machine.run("useradd", "--groups", "posd-till", "till")
        machine.run("useradd", "--create-home", "--shell", "/bin/bash", "--groups", "posd-admin,sudo", PERSON)
        machine.write(f"/etc/sudoers.d/{PERSON}", f"{PERSON} ALL=(ALL) NOPASSWD: ALL\n")
        machine.boot()

    def _script(self, name: str, text: str) -> None:
        self.machine.write(f"/usr/local/bin/{name}", text)
        (self.machine.root / "usr/local/bin" / name).chmod(0o755)

    def open_shop(self) -> None:
        """Open a shop with two terminals at configured addresses, the first with a pinned certificate; make payments
        and a backup.
        """
        machine = self.machine
        self._network(BEFORE)
        for terminal in (TILL_1, TILL_2):
            self._terminal(*terminal)
        shown = machine.root / f"var/lib/{TILL_1[0]}/tls/server.crt"
        pin = x509.load_pem_x509_certificates(shown.read_bytes())[0].fingerprint(hashes.SHA256()).hex()
        text = (machine.root / shop.CONFIG.lstrip("/")).read_text()
        for serial, address, scheme, port in (TILL_1, TILL_2):
            text += f'\n[[terminals]]\nserial = "{serial}"\nbase_url = "{scheme}://{address}:{port}"\n'
            text += f'fingerprint_sha256 = "{pin}"\n' if scheme == "https" else ""
        machine.write(shop.CONFIG, text)
        machine.run("systemctl", "restart", "posd")
        until(lambda: BEFORE in machine.run("posd", "tls", "status", check=False).stdout, "certificate", 120)
        # The terminals trust the CA that exists by now.
        for terminal in (TILL_1, TILL_2):
            self._terminal(*terminal)
        try:
            until(lambda: machine.run("posd", "status", check=False).returncode == 0, "all is well", 60)
        except AssertionError as error:
            said = machine.run("posd", "status", check=False)
            raise AssertionError(f"{error}\n{said.stdout}{said.stderr}") from None
        for (serial, *_), amount in ((TILL_1, "12.50"), (TILL_2, "3.20"), (TILL_1, "7.00")):
            paid = shop.charge(machine, amount, "--terminal", serial)
            assert shop.result(paid) == "approved", paid
        machine.run("systemctl", "start", "posd-backup")

    def lose_power(self) -> None:
        """Lose the power while one payment waits for its card, and another is charged without posd's knowledge."""
        for what, (serial, *_), amount in (("waits", TILL_2, WAITS), ("doubt", TILL_1, LOST)):
            started = shop.charge(self.machine, amount, "--terminal", serial, "--no-wait")
            assert started["phase"] == {"waits": "active", "doubt": "in_doubt"}[what], started
            self.ids[what] = started["client_transaction_id"]
        until(lambda: any(line["kind"] == "final" for line in self.ledger(TILL_1[0], "doubt")), "it was charged", 60)
        self.machine.cut_power()

    def pass_week(self) -> None:
        """Let a week pass: the battery of the clock is empty, the certificate has expired, and the disk is full."""
        self._expired()
        self.machine.write(RIGHT, f"+{WEEK}\n")
        self.machine.write(CLOCK, f"{WEEK - BEHIND:+d}\n")
        free = shutil.disk_usage(self._disk).free
        stray = self._disk / Path(STRAY).name
        host("fallocate", "--length", str(free - 400_000), str(stray))

    def boot(self) -> None:
        """Boot the machine with another address, and with another terminal in place of the second."""
        self.machine.boot()
        self._network(AFTER)
        for terminal in (TILL_1, SWAPPED):
            self._terminal(*terminal)
        # A person comes some minutes later. By then posd has asked about all open payments.
        until(self._looked, "posd has settled what it can, and has heard of the other terminal", 120)

    def _looked(self) -> bool:
        found = json.loads(self.machine.run("posd", "status", "--json", check=False).stdout or "{}")
        if "health" not in found:
            return False
        return bool(found["counters"]["in_doubt"] == 0 and found["health"]["checks"]["identity"]["status"] != "ok")

    def _expired(self) -> None:
        """Make the certificate again with the same CA and key, so that it expires within the week."""
        folder = self._disk / "tls"
        old, *rest = x509.load_pem_x509_certificates((folder / "server.crt").read_bytes())
        authority = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), None)
        now = datetime.now(UTC)
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), *(x509.IPAddress(ipaddress.ip_address(a)) for a in ("127.0.0.1", BEFORE))]
        )
        made = (
            x509.CertificateBuilder()
            .subject_name(old.subject)
            .issuer_name(old.issuer)
            .public_key(old.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=394))
            .not_valid_after(now + timedelta(days=2))
        )
        for extension in old.extensions:
            is_names = isinstance(extension.value, x509.SubjectAlternativeName)
            made = made.add_extension(names if is_names else extension.value, extension.critical)
        new = made.sign(authority, hashes.SHA256())  # type: ignore[arg-type]
        text = b"".join(one.public_bytes(serialization.Encoding.PEM) for one in (new, *rest))
        (folder / "server.crt").write_bytes(text)

    def _network(self, address: str) -> None:
        """Connect the machine and the terminals to one network, each with an address of its own."""
        for words in (
            "ip netns add lan",
            "ip link add shop0 type veth peer name shop1 netns lan",
            f"ip addr add {address}/24 dev shop0",
            "ip link set shop0 up",
            f"ip -n lan addr add {TILL_1[1]}/24 dev shop1",
            f"ip -n lan addr add {TILL_2[1]}/24 dev shop1",
            "ip -n lan link set shop1 up",
            "ip -n lan link set lo up",
        ):
            self.machine.run(*words.split())

    def _terminal(self, serial: str, address: str, scheme: str, port: int) -> None:
        unit = f"terminal-{address}"
        self.machine.run("systemctl", "stop", unit, check=False)
        words = ["ip", "netns", "exec", "lan", "/usr/local/bin/terminal", "simulate", "--serial", serial]
        words += ["--listen", f"{address}:{port}", "--state", f"/var/lib/{serial}", "--speed", "20"]
        words += ["--set", "wait-seconds=0", "--mdns-interface", address, "--ledger", f"/root/{serial}.jsonl"]
        words += ["--http"] if scheme == "http" else []
        words += ["--trust", f"{STATE}/tls/ca.crt"]
        (self.machine.root / f"var/lib/{serial}").mkdir(exist_ok=True)
        self.machine.run("systemd-run", "--collect", f"--unit={unit}", *words)
        listens = ("ip", "netns", "exec", "lan", "ss", "-Hltn", f"src {address}:{port}")
        until(lambda: bool(self.machine.out(*listens)), f"terminal {serial} listens", 60)

    def ledger(self, serial: str, what: str = "") -> list[dict[str, Any]]:
        """Return the lines of the terminal's ledger, of one kind or all."""
        file = self.machine.root / f"root/{serial}.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
        return [line for line in lines if not what or line.get("client_transaction_id") == self.ids[what]]

    def type(self, words: str, *codes: int, answer: str = "") -> str:
        """Type a command as the person does, on a terminal of 80 columns, and `answer` at its questions. Return the
        output.

        The exit code must be one of `codes`, if there are any.
        """
        code, shown = typed(self.machine, words, PERSON, answer)
        self.session.append(f"{PERSON}$ {words}\n{shown}\n[exit code {code}]")
        if codes:
            assert code in codes, f"exit code {code} of {words}\n{shown}"
        return shown


def run(report: Report, scratch: Path) -> None:
    """Run the part."""
    scene = Scene(scratch, f"posd-morning-{os.getpid()}", report.suite)
    try:
        with report.check(PART, "the power goes, a week passes, and the power comes back") as check:
            need("mmdebstrap", "mmdebstrap")
            need("systemd-nspawn", "systemd-container")
            need("mkfs.ext4", "e2fsprogs")
            if not any(Path("/dev").glob("loop*")):
                raise Skipped("this machine has no loop devices")
            scene.install(packages.given(scratch))
            scene.open_shop()
            scene.lose_power()
            scene.pass_week()
            scene.boot()
            check.note(f"waits: {scene.ids['waits']}; in doubt: {scene.ids['doubt']}")
        if report.checks[-1].result != "passed":
            return
        with report.check(PART, "a person mends it by posd status and what it says") as check:
            try:
                _mend(scene)
            finally:
                check.note("\n".join(scene.session))
        with report.check(PART, "each payment has its true outcome, nobody was charged twice, and cards are taken"):
            _true(scene)
    finally:
        scene.close()


def _mend(scene: Scene) -> None:
    """Type the commands that `posd status` advises, and read the status again. Where it asks for a look outside posd,
    take it.
    """
    waits = scene.ids["waits"][:8]
    said = _folded(scene.type("posd status", 1))
    assert said.startswith("posd: PAYMENTS CANNOT BE MADE: storage, clock, "), said
    # The disk: posd shows the large files, and one of them is not posd's.
    scene.type(_named(said, f"sudo du -xah --threshold=100M {STATE}"), 0)
    assert STRAY in scene.session[-1]
    scene.type(f"sudo rm {STRAY}", 0)
    # The clock: a watch shows that the year is wrong.
    _named(said, 'sudo timedatectl set-time "YYYY-MM-DD HH:MM:SS"')
    now = (datetime.now(UTC) + timedelta(seconds=WEEK)).strftime("%Y-%m-%d %H:%M:%S")
    scene.type(f'sudo timedatectl set-time "{now}"', 0)
    said = _folded(scene.type("posd status", 1))
    assert "the last write failed" not in said
    # The terminal: the device at the second till has another serial.
    new, old = SWAPPED[0], TILL_2[0]
    found = re.search(rf"sudo editor \+\d+ {re.escape(shop.CONFIG)}", said)
    assert found, said
    scene.machine.write("/root/edit.sed", f"s/{old}/{new}/\n")
    scene.type(found[0], 0)
    scene.type(_named(said, "posd config check && sudo systemctl reload posd"), 0)
    _settled(scene)
    said = _folded(scene.type("posd status", 1))
    assert "certificate valid for " in said, said
    assert "CONFLICT" not in said, said
    # The payment that waited for its card: its terminal is no longer configured, and cannot be asked.
    assert "is no longer in the configuration" in scene.type(_named(said, f"posd reconcile {waits}"), 4)
    assert "approved, declined, rejected, canceled, not_started" in said
    assert re.search(rf"posd resolve {waits}[-0-9a-f]* RESULT", said), said
    scene.type(f"posd resolve {waits} not_started", 0, answer=f"{old} has no such payment in its journal\ny\n")
    scene.type(_named(said, "sudo systemctl start posd-backup"), 0)
    said = scene.type("posd status", 0)
    assert said.startswith("posd: all is well"), said


def _settled(scene: Scene) -> None:
    """Wait until posd has renewed the certificate and knows the terminal. It does both by itself within a minute."""

    def well() -> bool:
        found = json.loads(scene.machine.run("posd", "status", "--json", check=False).stdout)
        checks = found["health"]["checks"]
        return bool(checks["certificate"]["status"] == checks["identity"]["status"] == "ok")

    until(well, "the certificate is renewed, and the terminal is known", 90)


def _folded(screen: str) -> str:
    """Return a screen as one line, with the texts that were broken at its edge joined."""
    return " ".join(re.sub(r"\n +(> )?", " ", screen).split())


def _named(said: str, command: str) -> str:
    """Return a command that must be on the screen. AssertionError if it is not."""
    assert command in said, f"{command!r} is not in:\n{said}"
    return command


def _true(scene: Scene) -> None:
    ended = {item["client_transaction_id"]: item for item in shop.payments(scene.machine)}
    assert len(ended) == 5
    doubt, waited = ended[scene.ids["doubt"]], ended[scene.ids["waits"]]
    assert shop.result(doubt) == "approved"
    assert [one["kind"] for one in doubt["outcome"]["evidence"]] == ["search"]
    assert shop.result(waited) == "not_started"
    assert [one["kind"] for one in waited["outcome"]["evidence"]] == ["operator"]
    for serial in (TILL_1[0], SWAPPED[0]):
        assert shop.result(shop.charge(scene.machine, "1.00", "--terminal", serial)) == "approved"
    charged = [
        line["client_transaction_id"]
        for serial in (TILL_1[0], TILL_2[0], SWAPPED[0])
        for line in scene.ledger(serial)
        if line["kind"] == "final" and line["charged"]
    ]
    approved = [
        item["client_transaction_id"] for item in shop.payments(scene.machine) if shop.result(item) == "approved"
    ]
    assert sorted(charged) == sorted(approved), (charged, approved)
    assert len(charged) == len(set(charged)) == 6
