"""Checks of posd's units in a real systemd, on a shop's machine with and without faults."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

from tests.system import packages, shop
from tests.system.machine import Machine, need, until
from tests.system.report import Check, Report

PART = "systemd"
RESTARTS = 20
#: Drop-in with a shorter watchdog time, so that the test does not wait a minute. The unit has WatchdogSec=60.
WATCHDOG = "[Service]\nWatchdogSec=6\n"
#: Drop-in for a start that fails until the cause is removed. systemd repeats the start every 50 ms.
FAILING = "[Service]\nRestartSec=50ms\nExecStartPre=/bin/sh -c 'test -e /run/mended'\n"
FAILED_STARTS = 200


def run(report: Report, scratch: Path) -> None:
    """Run the part. Each function of LOOKS is one check, in this order, on one machine."""
    machine = Machine(scratch / f"systemd-{report.suite}", f"posd-systemd-{os.getpid()}", report.suite)
    try:
        with report.check(PART, "a machine with the package is prepared") as check:
            need("mmdebstrap", "mmdebstrap")
            need("systemd-nspawn", "systemd-container")
            machine.make()
            package = packages.given(scratch)
            machine.put(package, "/root/")
            machine.run("apt-get", "update", "-q")
            install = ("apt-get", "install", "-y", "--no-install-recommends", f"/root/{package.name}")
            install += ("nats-server", "openssh-server")
            machine.run(*install, seconds=600)
            check.note(package.name)
        if report.checks[-1].result != "passed":
            return
        for look in LOOKS:
            with report.check(PART, str(look.__doc__).split("\n")[0].rstrip(".")) as check:
                look(machine, check)
    finally:
        machine.close()


def boots(machine: Machine, check: Check) -> None:
    """posd notifies systemd of READY and of its state at boot."""
    check.note(f"booted in {machine.boot():.1f} s; {machine.out('systemctl', 'is-system-running')}")
    _active(machine)
    check.note(str(machine.show("posd.service", "Type", "StatusText", "ActiveEnterTimestampMonotonic")))
    check.note(f"{_memory(machine)} MB")
    assert machine.show("posd.service", "StatusText")["StatusText"]
    assert machine.out("systemctl", "is-system-running") == "running", machine.out(
        "systemctl", "--failed", "--no-pager"
    )


def opened(machine: Machine, check: Check) -> None:
    """posd makes a new certificate by itself when a new address appears."""
    shop.configure(machine)
    check.note(f"after {shop.open_shop(machine):.1f} s")
    machine.run("systemctl", "restart", "posd")


def charged(machine: Machine, check: Check) -> None:
    """A card is charged on the simulated terminal."""
    document = shop.charge(machine)
    check.note(f"{document['client_transaction_id']}: {shop.result(document)}")
    assert shop.result(document) == "approved"


#: Program that creates the stream of NATS and prints the last message.
STREAM = """
import asyncio, sys
sys.path.insert(0, "/opt/posd/lib/site-packages")
import nats, nats.js.errors
async def main():
    client = await nats.connect("nats://127.0.0.1:4333")
    stream = client.jetstream()
    await stream.add_stream(name="POSD", subjects=["posd.*.*"], allow_direct=True)
    try:
        print((await stream.get_last_msg("POSD", "posd.m1.lane-1")).data.decode())
    except nats.js.errors.NotFoundError:
        print("nothing")
    await client.close()
asyncio.run(main())
"""


def relayed(machine: Machine, check: Check) -> None:
    """The relay sends the events to a NATS server under the restrictions of its unit."""
    machine.run(
        "systemd-run", "--unit=nats", "nats-server", "-js", "-sd", "/var/tmp/nats", "-a", "127.0.0.1", "-p", "4333"
    )
    last = ("python3", "-c", STREAM)
    until(lambda: machine.run(*last, check=False).returncode == 0, "the NATS server answers", 60)
    file = "/etc/posd/config.d/relay.toml"
    machine.write(file, '[merchant]\nid = "m1"\n[relay]\nservers = ["nats://127.0.0.1:4333"]\nlane = "lane-1"\n')
    machine.run("systemctl", "start", "posd-relay")
    took = until(lambda: '"kind":"state"' in machine.out(*last), "all was sent", 60)
    check.note(f"after {took:.1f} s; {machine.out(*last)}")
    check.note(str(machine.show("posd-relay.service", "ActiveState", "NRestarts", "MemoryCurrent")))
    assert machine.show("posd-relay.service", "ActiveState", "NRestarts") == {"ActiveState": "active", "NRestarts": "0"}
    machine.run("systemctl", "stop", "posd-relay", "nats")
    # the test removes the setting before posd reads the file, because the simulated terminals name another merchant
    machine.run("rm", file)


def reloaded(machine: Machine, check: Check) -> None:
    """A reload applies a changed fleet. posd refuses a broken file, and the old fleet stays in force."""
    process = machine.show("posd.service", "MainPID", "ActiveState")
    with shop.configuration(machine) as config:
        machine.write(shop.CONFIG, f'{config}[[terminals]]\nserial = "SN-0099"\n')
        machine.run("systemctl", "reload", "posd")
        until(lambda: "SN-0099" in machine.out("posd", "terminals", "--json"), "the new terminal is in the fleet", 30)
        machine.write(shop.CONFIG, f"{config}[no_such_section]\n")
        mark = machine.out("date", "+%s")
        assert machine.run("systemctl", "reload", "posd", check=False).returncode != 0
        journal = ("journalctl", "-u", "posd", "-o", "cat", f"--since=@{mark}")
        until(lambda: "no_such_section" in machine.out(*journal), "the journal names what is wrong", 30)
        check.note(machine.out(*journal))
        listed = machine.out("posd", "--socket", "/run/posd/till.sock", "terminals", "--json")
        assert "SN-0099" in listed
        machine.write(shop.CONFIG, config)
        machine.run("systemctl", "reload", "posd")
        until(lambda: "SN-0099" not in machine.out("posd", "terminals", "--json"), "the terminal is gone again", 30)
        assert machine.show("posd.service", "MainPID", "ActiveState") == process


def barked(machine: Machine, check: Check) -> None:
    """The watchdog kills a hanging daemon, systemd restarts it, and the open payment ends correctly."""
    if machine.show("posd.service", "WatchdogTimestampMonotonic")["WatchdogTimestampMonotonic"] == "0":
        raise AssertionError("posd has never fed the watchdog")
    machine.write("/etc/systemd/system/posd.service.d/watchdog.conf", WATCHDOG)
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "posd")
    before = machine.show("posd.service", "MainPID", "NRestarts")
    document = shop.charge(machine, "7.00", "--no-wait", "--metadata", "scenario=approve-chip-pin")
    machine.run("systemctl", "kill", "--signal=STOP", "--kill-whom=main", "posd")
    took = until(
        lambda: int(machine.show("posd.service", "NRestarts")["NRestarts"]) > int(before["NRestarts"]), "barks"
    )
    until(lambda: machine.show("posd.service", "ActiveState")["ActiveState"] == "active", "it is READY again")
    check.note(f"killed {took:.1f} s after it was stopped (WatchdogSec=6, then SIGABRT, 5 s later SIGKILL)")
    check.note("\n".join(re.findall(".*atchdog.*", machine.out("journalctl", "-u", "posd", "-n", "60", "-o", "cat"))))
    ended = json.loads(machine.run("posd", "await", document["client_transaction_id"], "--json", user="till").stdout)
    check.note(f"the payment that was open: {shop.result(ended)}")
    assert shop.result(ended) == "approved"
    (machine.root / "etc/systemd/system/posd.service.d/watchdog.conf").unlink()
    machine.run("systemctl", "daemon-reload")
    machine.run("systemctl", "restart", "posd")


def restarted(machine: Machine, check: Check) -> None:
    """Twenty restarts while a till calls without a pause refuse or break no call and lose no payment."""
    with shop.paying(machine) as told:
        for _ in range(RESTARTS):
            machine.run("systemctl", "restart", "posd")
    check.note(str(told))
    assert told["refused"] == 0
    assert set(told["outcomes"]) == {"approved"}
    assert told["broken"] == 0, f"{told['broken']} connections broke, and the till repeated the calls"
    _as_in_the_ledger(machine, check)


def killed(machine: Machine, check: Check) -> None:
    """After kill -9 while a till calls, systemd restarts posd. No call is refused and no payment is lost."""
    with shop.paying(machine) as told:
        for _ in range(5):
            before = machine.show("posd.service", "NRestarts")["NRestarts"]
            machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "posd")
            until(lambda: machine.show("posd.service", "NRestarts")["NRestarts"] != before, "started anew")  # noqa: B023
            _active(machine)
    check.note(str(told))
    assert told["refused"] == 0
    # posd cannot know whether an interrupted start was sent. Such a start stays in doubt until a person resolves it.
    assert set(told["outcomes"]) <= {"approved", "in doubt"}
    _settled(machine, check)


def put_back(machine: Machine, check: Check) -> None:
    """posd does not start with a database that root has copied. The command in posd's message sets the owner."""
    machine.run("systemctl", "stop", "posd")
    copied = "cd /var/lib/posd && cp -r tls /root/ && rm -r tls && cp -r /root/tls . && rm -r /root/tls"
    machine.run("sh", "-c", copied)
    mark = machine.out("date", "+%s")
    machine.run("systemctl", "start", "posd", check=False)
    journal = machine.out("journalctl", "-u", "posd", "-u", "posd-tls-init", "-o", "cat", f"--since=@{mark}")
    check.note(journal)
    commands = set(re.findall(r"sudo (chown -R \S+ /var/lib/posd)\b", journal))
    assert len(commands) == 1, journal
    machine.run(*commands.pop().split())
    machine.run("systemctl", "start", "posd")
    _active(machine)
    assert shop.result(shop.charge(machine)) == "approved"


def removed(machine: Machine, check: Check) -> None:
    """posd reports a removed file of the till's socket, and the command in the report repairs it."""
    machine.run("rm", "/run/posd/till.sock")
    shown = machine.run("posd", "status", check=False).stdout
    check.note(shown)
    machine.run(*re.findall(r"> sudo (systemctl .+)", shown)[0].split())
    assert shop.result(shop.charge(machine)) == "approved"


def failing(machine: Machine, check: Check) -> None:
    """systemd repeats a failing start while a till calls, until the cause is removed. Then posd runs."""
    drop_in = "/etc/systemd/system/posd.service.d/failing.conf"
    machine.write(drop_in, FAILING)
    machine.run("systemctl", "daemon-reload")
    with shop.paying(machine) as told:
        machine.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", "posd")
        until(lambda: int(machine.show("posd.service", "NRestarts")["NRestarts"]) > FAILED_STARTS, "tried again", 120)
        for command in ("status", "charge 1.00"):
            done = machine.run("timeout", "20", "posd", *command.split(), check=False)
            check.note(f"{done.stdout}{done.stderr}")
            assert done.returncode == 3, done
        machine.run("touch", "/run/mended")
        until(lambda: _states(machine) == ("active", "active"), "it runs, with the till's socket", 60)
    machine.run("rm", drop_in)
    machine.run("systemctl", "daemon-reload")
    check.note(str(told))
    assert told["refused"] == 0
    _settled(machine, check)


def mistaken(machine: Machine, check: Check) -> None:
    """If the configuration is faulty, posd uses the last good file. Without a good file posd does not start."""
    with shop.configuration(machine):
        machine.write(shop.CONFIG, "[no_such_section]\n")
        machine.cut_power()
        machine.boot()
        _active(machine)
        shop.network(machine)
        shop.terminal(machine, "SN-0001", shop.ADDRESS)
        assert shop.result(shop.charge(machine)) == "approved"
        check.note(machine.run("posd", "status", check=False).stdout)
        assert "no_such_section" in machine.out("journalctl", "-u", "posd", "-p", "err", "-b", "-o", "cat")
        machine.run("rm", "/var/lib/posd/config.last")
        mark = machine.out("date", "+%s")
        machine.run("systemctl", "restart", "posd", check=False)
        until(lambda: _states(machine) == ("failed", "inactive"), "given up")
        _refused(machine)
        check.note(machine.run("systemctl", "status", "posd", check=False).stdout)
        journal = machine.out("journalctl", "-u", "posd", "-o", "cat", f"--since=@{mark}")
        starts = journal.count("Starting posd.service")
        assert starts == 1
    assert shop.result(shop.charge(machine)) == "approved"


def stopped(machine: Machine, check: Check) -> None:
    """One command stops, disables or masks posd, and one command reverses it. A till's call does not start posd."""
    known = _known(machine)
    for stop, start in (
        ((("stop",)), (("start",),)),
        ((("disable", "--now")), (("enable", "--now"),)),
        ((("mask", "--now")), (("unmask",), ("start",))),
    ):
        done = machine.run("systemctl", *stop, "posd")
        check.note(f"systemctl {' '.join(stop)} posd: {_states(machine)} {done.stderr}")
        until(lambda: _states(machine) == ("inactive", "inactive"), "it is stopped")
        _refused(machine)
        assert _states(machine) == ("inactive", "inactive")
        for words in start:
            machine.run("systemctl", *words, "posd")
        assert _states(machine) == ("active", "active")
    machine.run("systemctl", "disable", "--now", "posd")
    machine.power_off()
    machine.boot()
    assert _states(machine) == ("inactive", "inactive")
    machine.run("systemctl", "enable", "--now", "posd")
    assert _known(machine) == known
    shop.open_shop(machine)
    assert shop.result(shop.charge(machine)) == "approved"


def backed_up(machine: Machine, check: Check) -> None:
    """The timer makes a backup, and the backup is verified."""
    assert machine.show("posd-backup.timer", "NextElapseUSecRealtime")["NextElapseUSecRealtime"]
    unit = "posd-backup.service"
    machine.run("systemctl", "start", unit, check=False)
    assert machine.show(unit, "Result")["Result"] == "success", machine.out("journalctl", "-u", unit, "-o", "cat")
    written = machine.out("find", "/var/lib/posd/backups", "-type", "f").splitlines()
    assert written, "the timer wrote no backup"
    for file in written:
        check.note(machine.out("posd", "verify", file, user="posd"))


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


def copied(machine: Machine, check: Check) -> None:
    """posd sends a backup to another machine by ssh. An interrupted copy does not change the previous backup."""
    machine.run("sh", "-c", SERVER)
    machine.run("systemctl", "start", "posd-copy")
    (sent,) = machine.out("find", "/home/backup-server", "-name", "*.gz*").splitlines()
    sums = machine.out("sha256sum", sent)
    check.note(machine.out("posd", "verify", sent))
    machine.run("systemctl", "stop", "posd")
    assert machine.run("systemctl", "start", "posd-copy", check=False).returncode
    check.note(machine.out("journalctl", "-u", "posd-copy", "-o", "cat", "-n", "12"))
    assert machine.out("sha256sum", sent) == sums
    machine.run("systemctl", "start", "posd")
    machine.run("systemctl", "reset-failed", "posd-copy")


def restored(machine: Machine, check: Check) -> None:
    """An operator stops posd, restores a backup, and starts posd again."""
    before = _known(machine)
    machine.run("runuser", "-u", "posd", "--", "posd", "backup", "/var/lib/posd/backups/by-hand.db")
    machine.run("systemctl", "stop", "posd")
    until(lambda: _states(machine)[1] == "inactive", "the socket is closed")
    assert _states(machine) == ("inactive", "inactive")
    assert not (machine.root / "run/posd/till.sock").exists()
    check.note(machine.out("posd", "restore", "/var/lib/posd/backups/by-hand.db", "--yes", user="posd"))
    machine.run("systemctl", "start", "posd")
    assert _known(machine) == before
    assert shop.result(shop.charge(machine)) == "approved"


def cut(machine: Machine, check: Check) -> None:
    """After a power cut during a payment that the terminal loses, posd starts and concludes nothing."""
    document = shop.charge(machine, "8.00", "--no-wait", "--metadata", "scenario=by-hand")
    identity = document["client_transaction_id"]
    machine.cut_power()
    check.note(f"booted in {machine.boot():.1f} s")
    shop.open_shop(machine)
    machine.run("posd", "reconcile", identity, check=False)
    found = next(one for one in shop.payments(machine) if one["client_transaction_id"] == identity)
    check.note(f"the payment under which it was cut: {found['phase']}, outcome {found['outcome']}")
    assert found["phase"] != "final"
    machine.run("posd", "release", identity, "--yes", "--note", "the power was cut")
    assert shop.result(shop.charge(machine)) == "approved"


LOOKS: tuple[Callable[[Machine, Check], None], ...] = (
    boots,
    opened,
    charged,
    relayed,
    reloaded,
    barked,
    restarted,
    killed,
    put_back,
    removed,
    failing,
    mistaken,
    stopped,
    backed_up,
    copied,
    restored,
    cut,
)


def _settled(machine: Machine, check: Check) -> None:
    """Resolve the payments that are in doubt after the kill, as a person with the ledger does. Compare posd with the
    ledger.
    """
    for document in shop.payments(machine):
        if document["phase"] != "final":
            words = ("--yes", "--note", "killed; the terminal's ledger has no approval of it")
            machine.run("posd", "resolve", document["client_transaction_id"], "not_started", *words)
    _as_in_the_ledger(machine, check)


def _active(machine: Machine) -> None:
    until(lambda: machine.show("posd.service", "ActiveState")["ActiveState"] == "active", "posd is READY")


def _states(machine: Machine) -> tuple[str, ...]:
    return tuple(machine.show(unit, "ActiveState")["ActiveState"] for unit in ("posd.service", "posd.socket"))


def _refused(machine: Machine) -> None:
    """Check that the call of a till fails at once while posd does not run."""
    done = machine.run("timeout", "10", "posd", "--socket", "/run/posd/till.sock", "status", check=False)
    assert done.returncode == 3, done


def _known(machine: Machine) -> dict[str, str]:
    """Return the result of each payment, by id."""
    return {document["client_transaction_id"]: shop.result(document) for document in shop.payments(machine)}


def _memory(machine: Machine) -> str:
    process = machine.show("posd.service", "MainPID")["MainPID"]
    status = machine.out("cat", f"/proc/{process}/status")
    return str(round(int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) / 1024, 1))


def _as_in_the_ledger(machine: Machine, check: Check) -> None:
    """Check that posd has exactly the approvals of the terminal's ledger."""
    counted, known = shop.approvals(machine)
    check.note(f"approved: {counted} by the terminal's ledger, {known} by posd")
    assert counted == known
