"""Checks of posd's units in a real systemd, on a shop's machine with and without faults."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Machine, until
from tests.system.report import Report

RESTARTS = 20
#: Drop-in with a shorter watchdog time, so that the test does not wait a minute. The unit has WatchdogSec=60.
WATCHDOG = "[Service]\nWatchdogSec=6\n"
#: Drop-in for a start that fails until the cause is removed. systemd repeats the start every 50 ms.
FAILING = "[Service]\nRestartSec=50ms\nExecStartPre=/bin/sh -c 'test -e /run/mended'\n"
FAILED_STARTS = 200


def run(report: Report, scratch: Path) -> None:
    """Run the part. Each function of LOOKS is one check, in this order, on one machine."""
    with Machine(report, scratch) as machine:
        with report.check("a machine with the package is prepared", needed=True):
            machine.make()
            machine.install(packages.given(scratch), "nats-server", "openssh-server")
        for look in LOOKS:
            with report.check(str(look.__doc__).split("\n")[0].rstrip(".")):
                look(machine)


def boots(machine: Machine) -> None:
    """posd notifies systemd of READY and of its state at boot."""
    machine.boot()
    _active(machine)
    assert machine.show("posd.service", "StatusText")["StatusText"]
    assert not (failed := machine.out("systemctl", "--failed", "--no-pager", "--no-legend")), failed
    assert machine.out("systemctl", "is-system-running") == "running"


def opened(machine: Machine) -> None:
    """posd makes a new certificate by itself when a new address appears. Then a card is charged."""
    shop.begin(machine)


#: Program that creates the stream of NATS and prints the last message. Without a message the program fails.
STREAM = """
import asyncio, nats
async def main():
    async with await nats.connect("nats://127.0.0.1:4333") as client:
        stream = client.jetstream()
        await stream.add_stream(name="POSD", subjects=["posd.*.*"], allow_direct=True)
        print((await stream.get_last_msg("POSD", "posd.m1.lane-1")).data.decode())
asyncio.run(main())
"""


def relayed(machine: Machine) -> None:
    """The relay sends the events to a NATS server under the restrictions of its unit."""
    server = ("nats-server", "-js", "-sd", "/var/tmp/nats", "-a", "127.0.0.1", "-p", "4333")
    machine.run("systemd-run", "--unit=nats", *server)
    last = ("/opt/posd/bin/python3", "-c", STREAM)
    until(lambda: "NotFoundError" in machine.run(*last, check=False).stderr, "the NATS server has the stream", 60)
    file = "/etc/posd/config.d/relay.toml"
    machine.write(file, '[merchant]\nid = "m1"\n[relay]\nservers = ["nats://127.0.0.1:4333"]\nlane = "lane-1"\n')
    machine.run("systemctl", "start", "posd-relay")
    until(lambda: '"kind":"state"' in machine.run(*last, check=False).stdout, "all was sent", 60)
    assert machine.show("posd-relay.service", "ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}
    machine.run("systemctl", "stop", "posd-relay", "nats")
    # the test removes the setting before posd reads the file, because the simulated terminals name another merchant
    machine.run("rm", file)


def reloaded(machine: Machine) -> None:
    """A reload applies a changed fleet. posd refuses a broken file, and the old fleet stays in force."""
    process = machine.show("posd.service", "MainPID", "ActiveState")
    with shop.configuration(machine) as config:
        machine.write(shop.CONFIG, f'{config}[[terminals]]\nserial = "SN-0099"\n')
        machine.run("systemctl", "reload", "posd")
        until(lambda: "SN-0099" in machine.out("posd", "terminals", "--json"), "the new terminal is in the fleet", 30)
        machine.write(shop.CONFIG, f"{config}[no_such_section]\n")
        mark = machine.out("date", "+%s")
        machine.fails("systemctl", "reload", "posd")
        journal = ("journalctl", "-u", "posd", "-o", "cat", f"--since=@{mark}")
        until(lambda: "no_such_section" in machine.out(*journal), "the journal names what is wrong", 30)
        listed = machine.out("posd", "--socket", "/run/posd/till.sock", "terminals", "--json")
        assert "SN-0099" in listed
        machine.write(shop.CONFIG, config)
        machine.run("systemctl", "reload", "posd")
        until(lambda: "SN-0099" not in machine.out("posd", "terminals", "--json"), "the terminal is gone again", 30)
        assert machine.show("posd.service", "MainPID", "ActiveState") == process


def barked(machine: Machine) -> None:
    """The watchdog kills a hanging daemon, systemd restarts it, and the open payment ends correctly."""
    fed = machine.show("posd.service", "WatchdogTimestampMonotonic")["WatchdogTimestampMonotonic"]
    assert fed != "0", "posd has never fed the watchdog"
    _drop_in(machine, WATCHDOG)
    machine.run("systemctl", "restart", "posd")
    before = machine.restarts()
    document = shop.charge(machine, "7.00", "--no-wait", "--metadata", "scenario=approve-chip-pin")
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", "posd")
    until(lambda: machine.restarts() > before, "barks")
    _active(machine)
    ended = json.loads(machine.run("posd", "await", document["client_transaction_id"], "--json", user="till").stdout)
    assert shop.result(ended) == "approved", ended
    _drop_in(machine, "")
    machine.run("systemctl", "restart", "posd")


def restarted(machine: Machine) -> None:
    """Twenty restarts while a till calls without a pause refuse or break no call and lose no payment."""
    with shop.paying(machine) as told:
        for _ in range(RESTARTS):
            machine.run("systemctl", "restart", "posd")
    assert told["broken"] == 0, f"{told['broken']} connections broke, and the till repeated the calls"
    shop.compare(machine)


def killed(machine: Machine) -> None:
    """After kill -9 while a till calls, systemd restarts posd. No call is refused and no payment is lost."""
    # posd cannot know whether an interrupted start was sent. Such a start stays in doubt until a person resolves it.
    with shop.paying(machine, "in doubt"):
        for _ in range(5):
            before = machine.restarts()
            machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "posd")
            until(lambda: machine.restarts() != before, "started anew")  # noqa: B023
            _active(machine)
    _settle(machine)


def put_back(machine: Machine) -> None:
    """posd does not start with a database that root has copied. The command in posd's message sets the owner."""
    machine.run("systemctl", "stop", "posd")
    copied = "cd /var/lib/posd && cp -r tls /root/ && rm -r tls && cp -r /root/tls . && rm -r /root/tls"
    machine.run("sh", "-c", copied)
    mark = machine.out("date", "+%s")
    machine.run("systemctl", "start", "posd", check=False)
    journal = machine.out("journalctl", "-u", "posd", "-u", "posd-tls-init", "-o", "cat", f"--since=@{mark}")
    commands = set(re.findall(r"sudo (chown -R \S+ /var/lib/posd)\b", journal))
    assert len(commands) == 1, journal
    machine.run(*commands.pop().split())
    machine.run("systemctl", "start", "posd")
    _active(machine)
    shop.paid(machine)


def removed(machine: Machine) -> None:
    """posd reports a removed file of the till's socket, and the command in the report repairs it."""
    machine.run("rm", "/run/posd/till.sock")
    shown = machine.fails("posd", "status")
    machine.run(*re.findall(r"> sudo (systemctl .+)", shown)[0].split())
    shop.paid(machine)


def failing(machine: Machine) -> None:
    """systemd repeats a failing start while a till calls, until the cause is removed. Then posd runs."""
    _drop_in(machine, FAILING)
    with shop.paying(machine, "in doubt"):
        machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "posd")
        until(lambda: machine.restarts() > FAILED_STARTS, "tried again", 120)
        for command in ("status", "charge 1.00"):
            machine.fails("timeout", "20", "posd", *command.split(), codes=(3,))
        machine.run("touch", "/run/mended")
        machine.gets_to("active", "active")
    _drop_in(machine, "")
    _settle(machine)


def mistaken(machine: Machine) -> None:
    """If the configuration is faulty, posd uses the last good file. Without a good file posd does not start."""
    with shop.configuration(machine):
        machine.write(shop.CONFIG, "[no_such_section]\n")
        machine.cut_power()
        machine.boot()
        _active(machine)
        shop.network(machine)
        shop.terminal(machine)
        shop.paid(machine)
        assert "no_such_section" in machine.out("journalctl", "-u", "posd", "-p", "err", "-b", "-o", "cat")
        machine.run("rm", "/var/lib/posd/config.last")
        mark = machine.out("date", "+%s")
        machine.run("systemctl", "restart", "posd", check=False)
        machine.gets_to("failed", "inactive")
        _refused(machine)
        machine.fails("systemctl", "status", "posd")
        journal = machine.out("journalctl", "-u", "posd", "-o", "cat", f"--since=@{mark}")
        assert journal.count("Starting posd.service") == 1
    shop.paid(machine)


def stopped(machine: Machine) -> None:
    """One command stops, disables or masks posd, and one command reverses it. A till's call does not start posd."""
    known = shop.known(machine)
    for stop, *start in (("stop", "start"), ("disable --now", "enable --now"), ("mask --now", "unmask", "start")):
        machine.run("systemctl", *stop.split(), "posd")
        machine.gets_to("inactive", "inactive")
        _refused(machine)
        assert machine.states() == ("inactive", "inactive")
        for words in start:
            machine.run("systemctl", *words.split(), "posd")
        assert machine.states() == ("active", "active")
    machine.run("systemctl", "disable", "--now", "posd")
    machine.power_off()
    machine.boot()
    assert machine.states() == ("inactive", "inactive")
    machine.run("systemctl", "enable", "--now", "posd")
    assert shop.known(machine) == known
    shop.open_shop(machine)
    shop.paid(machine)


def backed_up(machine: Machine) -> None:
    """The timer makes a backup, and the backup is verified."""
    assert machine.show("posd-backup.timer", "NextElapseUSecRealtime")["NextElapseUSecRealtime"]
    unit = "posd-backup.service"
    machine.run("systemctl", "start", unit, check=False)
    assert machine.show(unit, "Result")["Result"] == "success", machine.out("journalctl", "-u", unit, "-o", "cat")
    written = machine.out("find", "/var/lib/posd/backups", "-type", "f").splitlines()
    assert written, "the timer wrote no backup"
    for file in written:
        machine.run("posd", "verify", file, user="posd")


#: Script that makes a user for backups by ssh, as on another machine, and the user's key. The script also makes
#: /etc/posd/copy from the package's example (docs/guides/install.md).
SERVER = """set -e
useradd --create-home --shell /bin/sh backup-server
install -d -m 700 /etc/posd/credentials
ssh-keygen -q -t ed25519 -N '' -f /etc/posd/credentials/copy.key
install -D -o backup-server /etc/posd/credentials/copy.key.pub /home/backup-server/.ssh/authorized_keys
sed 's/backup@backup.example/backup-server@127.0.0.1/' /usr/share/doc/posd/examples/copy.example > /etc/posd/copy
chmod 755 /etc/posd/copy
ssh-keyscan 127.0.0.1 > /etc/posd/copy.hosts
"""


def copied(machine: Machine) -> None:
    """posd sends a backup to another machine by ssh. An interrupted copy does not change the previous backup."""
    machine.run("sh", "-c", SERVER)
    machine.run("systemctl", "start", "posd-copy")
    (sent,) = machine.out("find", "/home/backup-server", "-name", "*.gz*").splitlines()
    sums = machine.out("sha256sum", sent)
    machine.run("posd", "verify", sent)
    machine.run("systemctl", "stop", "posd")
    machine.fails("systemctl", "start", "posd-copy")
    assert machine.out("sha256sum", sent) == sums
    machine.run("systemctl", "start", "posd")
    machine.run("systemctl", "reset-failed", "posd-copy")


def cut(machine: Machine) -> None:
    """After a power cut during a payment that the terminal loses, posd starts and concludes nothing."""
    document = shop.charge(machine, "8.00", "--no-wait", "--metadata", "scenario=by-hand")
    identity = document["client_transaction_id"]
    machine.cut_power()
    machine.boot()
    shop.open_shop(machine)
    machine.run("posd", "reconcile", identity, check=False)
    found = next(one for one in shop.payments(machine) if one["client_transaction_id"] == identity)
    assert found["phase"] != "final", found
    machine.run("posd", "release", identity, "--yes", "--note", "the power was cut")
    shop.paid(machine)


LOOKS: Sequence[Callable[[Machine], None]] = (
    *(boots, opened, relayed, reloaded, barked, restarted, killed, put_back),
    *(removed, failing, mistaken, stopped, backed_up, copied, cut),
)


def _drop_in(machine: Machine, text: str) -> None:
    """Change the unit of the daemon."""
    machine.write("/etc/systemd/system/posd.service.d/test.conf", text)
    machine.run("systemctl", "daemon-reload")


def _settle(machine: Machine) -> None:
    """Resolve the payments that are in doubt after the kill, as a person with the ledger does. Compare posd with the
    ledger.
    """
    for document in shop.payments(machine):
        if document["phase"] != "final":
            words = ("--yes", "--note", "killed; the terminal's ledger has no approval of it")
            machine.run("posd", "resolve", document["client_transaction_id"], "not_started", *words)
    shop.compare(machine)


def _active(machine: Machine) -> None:
    until(lambda: machine.states()[0] == "active", "posd is READY")


def _refused(machine: Machine) -> None:
    """Check that the call of a till fails at once while posd does not run."""
    machine.fails("timeout", "10", "posd", "--socket", "/run/posd/till.sock", "status", codes=(3,))
