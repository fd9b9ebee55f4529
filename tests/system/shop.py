"""A shop in the machine: a network interface, a simulated terminal, posd's configuration of the terminal, and a
till.
"""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.machine import Machine, until

#: Address of the machine and of the terminal, in the container's own network.
ADDRESS = "10.99.0.1"
CONFIG = "/etc/posd/config.toml"
TERMINAL = f'[[terminals]]\nserial = "SN-0001"\nbase_url = "http://{ADDRESS}:6868"\n'


def begin(machine: Machine) -> None:
    """Connect a booted machine to its first terminal, and charge a card."""
    machine.write(CONFIG, machine.out("cat", CONFIG) + f"\n{TERMINAL}")
    open_shop(machine)
    machine.run("systemctl", "restart", "posd")
    paid(machine)


@contextmanager
def configuration(machine: Machine) -> Iterator[str]:
    """Yield the configuration, for changes by the block. Then restore the configuration and restart posd."""
    text = machine.out("cat", CONFIG) + "\n"
    try:
        yield text
    finally:
        machine.write(CONFIG, text)
        machine.run("systemctl", "restart", "posd")


def open_shop(machine: Machine) -> None:
    """Bring the network up and start the terminal. The address appears while posd runs, as with DHCP. posd therefore
    makes a new certificate.
    """
    network(machine)
    machine.run("systemctl", "reload", "posd")
    until(lambda: ADDRESS in machine.run("posd", "tls", "status", check=False).stdout, "certificate", 120)
    terminal(machine)
    until(lambda: not machine.run("posd", "terminals", check=False).returncode, "posd answers")
    if machine.run("id", "till", check=False).returncode:
        machine.run("useradd", "--groups", "posd-till", "till")


def network(machine: Machine) -> None:
    """Bring the network up. Call this function after each boot."""
    machine.run("ip", "link", "add", "shop0", "type", "veth", "peer", "name", "shop1")
    machine.run("ip", "addr", "add", f"{ADDRESS}/24", "dev", "shop0")
    for interface in ("shop0", "shop1"):
        machine.run("ip", "link", "set", interface, "up")


def terminal(machine: Machine) -> None:
    """Start the simulated terminal, or start it again."""
    machine.run("systemctl", "stop", "terminal", check=False)
    options = ["--serial", "SN-0001", "--http", "--listen", f"{ADDRESS}:6868", "--state", "/var/lib/terminal"]
    options += ["--speed", "50", "--trust", "/var/lib/posd/tls/ca.crt", "--ledger", "/root/ledger.jsonl"]
    machine.run("systemd-run", "--collect", "--unit=terminal", "posd", "simulate", *options)
    until(lambda: bool(machine.out("ss", "-Hltn", "sport = 6868")), "the terminal listens", 60)


def charge(machine: Machine, amount: str, *options: str) -> dict[str, Any]:
    """Pay as a till does, as a user of the group posd-till. Return the transaction."""
    done = machine.run("posd", "charge", amount, "--json", *options, user="till", check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"posd charge: exit code {done.returncode}\n{done.stdout}{done.stderr}") from None


def paid(machine: Machine, *options: str) -> None:
    """Make an approved payment."""
    document = charge(machine, "12.50", *options)
    assert result(document) == "approved", document


def compare(machine: Machine) -> None:
    """Check that posd has exactly the approvals of the terminal's ledger."""
    entries = [json.loads(line) for line in machine.out("cat", "/root/ledger.jsonl").splitlines()]
    counted = sum(entry["kind"] == "final" and bool(entry["charged"]) for entry in entries)
    found = sum(result(document) == "approved" for document in payments(machine))
    assert counted == found, f"approved: {counted} by the terminal's ledger, {found} by posd"


def payments(machine: Machine, *options: str) -> list[dict[str, Any]]:
    """Return all payments in posd, or those that `posd list` shows with these options."""
    pages = machine.out("posd", "list", "--all", "--json", *options).splitlines()  # each line is a page of the list
    return [document for page in pages for document in json.loads(page)["transactions"]]


def result(document: dict[str, Any]) -> str:
    """Return the result of a transaction, or the phase of an open transaction."""
    outcome = document.get("outcome")
    return str(outcome["result"] if isinstance(outcome, dict) else outcome or document["phase"])


def known(machine: Machine) -> dict[str, str]:
    """Return the result of each payment, by id."""
    return {document["client_transaction_id"]: result(document) for document in payments(machine)}


@contextmanager
def paying(machine: Machine, *others: str) -> Iterator[dict[str, Any]]:
    """Run a till that pays without a pause during the block. Check that no call was refused, and that each payment was
    approved, or had one of the other results. After the block the dictionary has the till's counts.
    """
    machine.put(Path(__file__).with_name("till.py"))
    machine.run("chmod", "-R", "a+rX", "/root")
    machine.run("systemctl", "reset-failed", "till", check=False)
    unit = ("systemd-run", "--quiet", "--pipe", "--wait", "--unit=till", "--uid=till", "-p", "TimeoutStopSec=150")
    process = machine.start(*unit, "python3", "/root/till.py")
    told: dict[str, Any] = {}
    try:
        yield told
    finally:
        machine.run("systemctl", "stop", "till", check=False)
        try:
            output, _ = process.communicate(timeout=200)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            raise AssertionError("the till got no answer any more") from None
    found = re.search(r"^\{.*\}$", output, re.MULTILINE)
    assert found, f"the till failed:\n{output[-2000:]}"
    told.update(json.loads(found[0]))
    machine.note(told)
    assert told["refused"] == 0
    assert {"approved"} <= set(told["outcomes"]) | set(others) <= {"approved", *others}
